// Tokens as people read them. All text reaches the page as text, never as markup.

const SPACE = "▁";
const HIDDEN = /(?![\u200c\u200d])[\p{C}\p{Zl}\p{Zp}]/gu;

/** Control and format characters are written out, so that no two tokens look alike and none turns the line around. */
export const visible = (text: string) =>
  text.replace(HIDDEN, (c) => "\\u" + c.codePointAt(0)!.toString(16).padStart(4, "0"));

/** A piece without the mark that begins a word. */
export function pieceText(token: string): string {
  const text = token.startsWith(SPACE) ? token.slice(1) || "␣" : token;
  return visible(text.replaceAll("\n", "↵").replaceAll("\t", "⇥"));
}

/** A token and its place; the place alone where the token is not known. */
export const placed = (tokens: string[], place: number) => (tokens[place] === undefined ? String(place) : `${pieceText(tokens[place])} (${place})`);

const TURNED = /^[^\p{L}]*[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

/** Whether a text is read from right to left: by its first letter. */
export const rightToLeft = (text: string) => TURNED.test(text);

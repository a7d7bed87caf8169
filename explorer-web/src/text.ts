// Tokens as people read them. All text reaches the page as text, never as markup.

const SPACE = "▁";
const HIDDEN = /(?![\u200c\u200d])[\p{C}\p{Zl}\p{Zp}]/gu;

/** Control and format characters are written out, so that no two tokens look alike and none turns the line around. */
export const visible = (text: string) =>
  text.replace(HIDDEN, (c) => "\\u" + c.codePointAt(0)!.toString(16).padStart(4, "0"));

/** A piece without the mark that begins a word. */
export function pieceText(token: string): string {
  const text = token.startsWith(SPACE) ? token.slice(1) || "␣" : token;
  return visible(text);
}

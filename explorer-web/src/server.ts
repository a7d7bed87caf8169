// The server that a page came from, or the kernel of a notebook: both answer the same routes.

export type Ask = (path: string, options?: RequestInit) => Promise<Response>;

/** The sentence in which the server says why it refused. */
export async function failure(answer: Response): Promise<string> {
  try {
    return ((await answer.json()) as { error: string }).error;
  } catch {
    return `the server answered ${answer.status}`;
  }
}

/** A request with a body of JSON. */
export const posted = (content: object, signal?: AbortSignal): RequestInit => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(content),
  signal,
});

/** The answer as JSON; refusals are errors. */
export async function answered<T>(ask: Ask, path: string, content: object, signal?: AbortSignal): Promise<T> {
  const answer = await ask(path, posted(content, signal));
  if (!answer.ok) throw new Error(await failure(answer));
  return (await answer.json()) as T;
}

interface Channel {
  send(content: unknown): void;
  on(event: "msg:custom", call: (content: Reply, buffers: DataView[]) => void): void;
}

interface Reply {
  id: number;
  status: number;
}

/** Ask the kernel of a notebook by the messages of a widget. */
export function kernel(channel: Channel): Ask {
  const waiting = new Map<number, (answer: Response) => void>();
  let count = 0;
  channel.on("msg:custom", ({ id, status }, [body]) => {
    const bytes = body ? new Uint8Array(body.buffer, body.byteOffset, body.byteLength).slice() : null;
    waiting.get(id)?.(new Response(bytes, { status }));
    waiting.delete(id);
  });
  return (path, options = {}) =>
    new Promise((resolve, reject) => {
      const id = count++;
      waiting.set(id, resolve);
      options.signal?.addEventListener("abort", () => {
        if (!waiting.delete(id)) return;
        channel.send({ id, leaving: true });
        reject(new DOMException("aborted", "AbortError"));
      });
      channel.send({ id, path, method: options.method ?? "GET", body: options.body ?? "" });
    });
}

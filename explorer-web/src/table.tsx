// Tables of numbers: wide ones scroll, long ones are made when they are opened.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

/** A part that scrolls, by keyboard as well. */
export function Sheet({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="sheet" tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}

interface FoldedProps {
  summary: string;
  label: string;
  corner?: string; // above the names of the rows
  columns: string[];
  titles?: (string | undefined)[]; // of the columns
  rows: string[];
  cell: (row: number, column: number) => string;
}

/** A table below a line that opens it. */
export function FoldedTable({ summary, label, corner, columns, titles, rows, cell }: FoldedProps) {
  const [open, setOpen] = useState(false);
  return (
    <details class="numbers" onToggle={(event) => setOpen((event.currentTarget as HTMLDetailsElement).open)}>
      <summary>{summary}</summary>
      {open && (
        <Sheet label={label}>
          <table>
            <thead>
              <tr>
                {corner ? <th scope="col">{corner}</th> : <td />}
                {columns.map((name, j) => (
                  <th key={j} scope="col" dir="auto" title={titles?.[j]}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((name, i) => (
                <tr key={i}>
                  <th scope="row" dir="auto">
                    {name}
                  </th>
                  {columns.map((_, j) => (
                    <td key={j}>{cell(i, j)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </Sheet>
      )}
    </details>
  );
}

/** The names of the columns of a table whose last column has bars. */
export function BarHead({ names }: { names: ComponentChildren[] }) {
  return (
    <thead>
      <tr>
        {names.map((name, i) => (
          <th key={i} scope="col">
            {name}
          </th>
        ))}
        <th scope="col">
          <span class="hidden">bar</span>
        </th>
      </tr>
    </thead>
  );
}

export function Bar({ share }: { share: number }) {
  return <i class={share < 0 ? "bar below" : "bar"} style={{ width: `calc(min(5rem, 9vw) * ${Math.abs(share)})` }} />;
}

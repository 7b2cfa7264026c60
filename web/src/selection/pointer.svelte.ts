/** Pointer in a picture of steps by positions: hovered, locked by a click, moved by keys. */

/** Output step and source position; either may be null. */
export interface PointedCell {
  readonly step: number | null;
  readonly position: number | null;
}

const NOTHING: PointedCell = { step: null, position: null };

// Chromium also sends pointer events when the page scrolls or changes under a resting pointer.
let keyboardIsLast = false;

/** Records a pointer event of the document; only a pointer that has moved takes the cursor from the keyboard. */
export function notePointer(event: { readonly movementX: number; readonly movementY: number }): void {
  if (event.movementX || event.movementY) keyboardIsLast = false;
}

export class Pointer {
  protected hovered = $state.raw<PointedCell>(NOTHING);
  protected pinned = $state.raw<PointedCell | null>(null);

  /** Hovered or locked step. */
  get step(): number | null {
    return (this.pinned ?? this.hovered).step;
  }

  /** Hovered or locked position. */
  get position(): number | null {
    return (this.pinned ?? this.hovered).position;
  }

  get locked(): boolean {
    return this.pinned !== null;
  }

  /** Sets the hovered cell, or clears it; a locked cell stays, and so does the keyboard cursor while the pointer rests. */
  hover(step: number | null = null, position: number | null = null): void {
    if (!keyboardIsLast) this.show(step, position);
  }

  /** Sets the cell without an event of the user; a locked cell stays. */
  show(step: number | null, position: number | null): void {
    if (step !== this.hovered.step || position !== this.hovered.position) this.hovered = { step, position };
  }

  /** Locks a cell until Esc; unlocks the same cell. */
  lock(step: number | null, position: number | null): void {
    const same = this.pinned !== null && this.pinned.step === step && this.pinned.position === position;
    this.pinned = same ? null : { step, position };
    this.hovered = { step, position };
  }

  /** Moves the keyboard cursor; a locked cell moves with it. */
  move(step: number | null, position: number | null): void {
    keyboardIsLast = true;
    if (this.pinned) this.pinned = { step, position };
    this.hovered = { step, position };
  }

  /** Clears the hovered and the locked cell. */
  clear(): void {
    this.pinned = null;
    this.hovered = NOTHING;
  }
}

/** View of a shared pointer for a picture with other rows: `steps` holds the shared step of each row, or null. */
export class MappedPointer extends Pointer {
  constructor(
    private readonly shared: Pointer,
    private readonly steps: () => readonly (number | null)[],
  ) {
    super();
  }

  /** Row of the picture; a row without a shared step is local. */
  override get step(): number | null {
    const { step } = this.shared;
    if (step === null) return super.step;
    const row = this.steps().indexOf(step);
    return row < 0 ? null : row;
  }

  override get position(): number | null {
    return this.shared.position;
  }

  override get locked(): boolean {
    return this.shared.locked;
  }

  private sharedStep(row: number | null): number | null {
    return row === null ? null : (this.steps()[row] ?? null);
  }

  override hover(row: number | null = null, position: number | null = null): void {
    super.hover(row, position);
    this.shared.hover(this.sharedStep(row), position);
  }

  override lock(row: number | null, position: number | null): void {
    this.shared.lock(this.sharedStep(row), position);
  }

  override move(row: number | null, position: number | null): void {
    super.move(row, position);
    this.shared.move(this.sharedStep(row), position);
  }

  override clear(): void {
    super.clear();
    this.shared.clear();
  }
}

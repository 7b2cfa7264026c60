/** Where one points in a picture of steps by positions: hovered, locked by a click, moved by the keyboard. */

/** A step of the output and a position of the source; either may be open. */
export interface PointedCell {
  readonly step: number | null;
  readonly position: number | null;
}

const NOTHING: PointedCell = { step: null, position: null };

export class Pointer {
  protected hovered = $state.raw<PointedCell>(NOTHING);
  protected pinned = $state.raw<PointedCell | null>(null);

  /** The step of the output that is pointed at, or locked. */
  get step(): number | null {
    return (this.pinned ?? this.hovered).step;
  }

  /** The position of the source that is pointed at, or locked. */
  get position(): number | null {
    return (this.pinned ?? this.hovered).position;
  }

  get locked(): boolean {
    return this.pinned !== null;
  }

  /** The pointer is here; nowhere without arguments. What is locked stays. */
  hover(step: number | null = null, position: number | null = null): void {
    if (step !== this.hovered.step || position !== this.hovered.position) this.hovered = { step, position };
  }

  /** Keeps the cell until Esc; the same cell again frees it. */
  lock(step: number | null, position: number | null): void {
    const same = this.pinned !== null && this.pinned.step === step && this.pinned.position === position;
    this.pinned = same ? null : { step, position };
    this.hovered = { step, position };
  }

  /** The keyboard's cursor goes there: a lock moves with it. */
  move(step: number | null, position: number | null): void {
    if (this.pinned) this.pinned = { step, position };
    this.hovered = { step, position };
  }

  /** Nothing is locked or pointed at. */
  free(): void {
    this.pinned = null;
    this.hovered = NOTHING;
  }
}

/** A shared pointer as a picture knows it whose rows are other steps: `steps` holds the shared step of each, null where there is none. */
export class MappedPointer extends Pointer {
  constructor(
    private readonly shared: Pointer,
    private readonly steps: () => readonly (number | null)[],
  ) {
    super();
  }

  /** Its row; one that is no shared step is known here alone. */
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

  private of(row: number | null): number | null {
    return row === null ? null : (this.steps()[row] ?? null);
  }

  override hover(row: number | null = null, position: number | null = null): void {
    super.hover(row, position);
    this.shared.hover(this.of(row), position);
  }

  override lock(row: number | null, position: number | null): void {
    this.shared.lock(this.of(row), position);
  }

  override move(row: number | null, position: number | null): void {
    super.hover(row, position);
    this.shared.move(this.of(row), position);
  }

  override free(): void {
    super.free();
    this.shared.free();
  }
}

/** Time of the last answer of a model in the page. */
class DecodingTime {
  /** Sentence about the last answer; empty before the first. */
  text = $state.raw("");

  note(milliseconds: number, kernel: string): void {
    this.text = `Computed in ${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms in ${kernel}.`;
  }
}

export const decodingTime = new DecodingTime();

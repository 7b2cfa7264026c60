/** Light or dark: as the system says, until the reader says otherwise. */

export type Theme = "system" | "light" | "dark";

class Appearance {
  theme = $state.raw<Theme>("system");
  private system = $state.raw(matchMedia("(prefers-color-scheme: dark)").matches);

  constructor() {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => (this.system = event.matches));
  }

  get dark(): boolean {
    return this.theme === "system" ? this.system : this.theme === "dark";
  }

  /** The other one than what is seen now. */
  turn(): void {
    this.theme = this.dark ? "light" : "dark";
  }
}

export const appearance = new Appearance();

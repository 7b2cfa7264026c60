/** Color theme: of the system, unless the user selects one. */

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

  /** Switches between light and dark. */
  toggle(): void {
    this.theme = this.dark ? "light" : "dark";
  }
}

export const appearance = new Appearance();

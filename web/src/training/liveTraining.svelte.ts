/** Listens to a running training while the page is open. */
import { untrack } from "svelte";
import type { TrainingFrame, TrainingHistory } from "../data/contents";
import { listenToTraining } from "../data/api";
import { page } from "../selection/page.svelte";

export function followTraining(): void {
  const training = $derived(page.contents.training);
  // Events are drawn at most four times per second.
  $effect(() => {
    if (!page.served || !training || untrack(() => page.over)) return;
    let heard: TrainingHistory["log"] = [];
    let seen: TrainingFrame[] = [];
    const draw = setInterval(() => {
      if (heard.length + seen.length === 0) return;
      page.lines = [...page.lines, ...heard];
      page.frames = [...page.frames, ...seen];
      [heard, seen] = [[], []];
    }, 250);
    const [since, have] = untrack(() => [page.log.length, new Set(page.reel.map((frame) => frame.update))]);
    const stop = listenToTraining(since, {
      line(line) {
        heard.push(line);
        if (line.event === "stopped") stop();
      },
      frame(frame) {
        if (!have.has(frame.update)) seen.push(frame);
        have.add(frame.update);
      },
      running: (running) => (page.heard = running),
      card: (card) => (page.contents = { ...page.contents, card }),
    });
    return () => {
      stop();
      clearInterval(draw);
    };
  });
}

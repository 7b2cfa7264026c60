/** Listens to a running training while the page is open. */
import { untrack } from "svelte";
import type { TrainingFrame, TrainingHistory } from "../data/contents";
import { listenToTraining } from "../data/api";
import { page } from "../selection/page.svelte";

export function followTraining(): void {
  const training = $derived(page.contents.training);
  // Events are drawn at most four times per second.
  $effect(() => {
    if (!page.served || !training || untrack(() => page.isFinished)) return;
    page.streamError = "";
    let newLines: TrainingHistory["log"] = [];
    let newFrames: TrainingFrame[] = [];
    const timer = setInterval(() => {
      if (newLines.length + newFrames.length === 0) return;
      page.newLogLines = [...page.newLogLines, ...newLines];
      page.newFrames = [...page.newFrames, ...newFrames];
      [newLines, newFrames] = [[], []];
    }, 250);
    const [since, knownUpdates] = untrack(() => [page.log.length, new Set(page.allFrames.map((frame) => frame.update))]);
    const stop = listenToTraining(since, {
      line(line) {
        newLines.push(line);
        if (line.event === "stopped") stop();
      },
      frame(frame) {
        if (!knownUpdates.has(frame.update)) newFrames.push(frame);
        knownUpdates.add(frame.update);
      },
      running: (running) => (page.reportedRunning = running),
      card: (card) => (page.contents = { ...page.contents, card }),
      // Without stop() the browser would request the stream again every few seconds.
      failed(message) {
        page.streamError = message;
        stop();
      },
    });
    return () => {
      stop();
      clearInterval(timer);
    };
  });
}

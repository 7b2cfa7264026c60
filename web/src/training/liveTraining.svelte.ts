/** Listens to a running training while the page is open. */
import { untrack } from "svelte";
import type { TrainingFrame, TrainingHistory } from "../data/contents";
import { listenToTraining } from "../data/api";
import { page } from "../selection/page.svelte";

export function followTraining(): void {
  const training = $derived(page.contents.training);
  // Events are drawn at most four times per second.
  $effect(() => {
    // The record of the confidence follows the end of the training, so the page listens until the process has ended.
    if (!page.served || !training || untrack(() => page.isFinished && !training.running)) return;
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
    let hasStopped = untrack(() => page.isFinished);
    const stop = listenToTraining(since, {
      line(line) {
        newLines.push(line);
        hasStopped ||= line.event === "stopped";
      },
      frame(frame) {
        if (!knownUpdates.has(frame.update)) newFrames.push(frame);
        knownUpdates.add(frame.update);
      },
      running(running) {
        page.reportedRunning = running;
        if (hasStopped && !running) stop();
      },
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

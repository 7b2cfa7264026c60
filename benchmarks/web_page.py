"""Time of a page with a model in Chromium: to the first answer, and of each word.

    taskset -c 1 python benchmarks/web_page.py PAGE WORDS [--opens 9] [--expected OUTPUTS]

PAGE is a file of `pellucid export RUN --html`; the first column of each line of WORDS after the header is typed, one
word after the other, with the network off. The first answer counts from the start of the navigation. "decode" is the
time of the answer that the page displays; "shown" is the time from the input to the changed page; "cpu" is the
processor time of the page's process for one word on average, with drawing. OUTPUTS are the lines of `pellucid predict`;
outputs that differ from them are counted. One line of JSON is printed. It needs Playwright and the Chromium of the
browser tests.
"""

import argparse
import csv
import json
import statistics
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

BROWSERS = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")
FIRST_ANSWER = """
new MutationObserver(() => {
  if (document.querySelector("output")?.textContent) window.firstAnswer ??= performance.now();
}).observe(document, { childList: true, subtree: true, characterData: true });
"""
TYPE_WORDS = """
async (words) => {
  const input = document.querySelector("input[type=search]");
  const answer = document.querySelector(".answer");
  const results = [];
  for (const word of words) {
    const start = performance.now();
    const shown = new Promise((resolve) => {
      const observer = new MutationObserver(() => {
        if (answer.querySelector(".small").textContent !== word) return;
        observer.disconnect();
        resolve(performance.now() - start);
      });
      observer.observe(answer, { childList: true, subtree: true, characterData: true });
    });
    input.value = word;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    const milliseconds = await shown;
    await new Promise((resolve) => setTimeout(resolve));
    const [, decode] = answer.textContent.match(/Computed in ([\\d.]+) ms/);
    results.push([answer.querySelector("output").textContent, Number(decode), milliseconds]);
  }
  return results;
}
"""


def main_thread_ms(session: CDPSession) -> float:
    """Return the processor time of the main thread of a page in milliseconds."""
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return 1000 * float(metrics["TaskDuration"])


def open_page(browser: Browser, url: str) -> tuple[Page, CDPSession, float, float]:
    """Open a page without a network.

    Returns:
        The page with its first answer, its session of the DevTools protocol, and the wall time and the processor time
        to the first answer in milliseconds.
    """
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.add_init_script(FIRST_ANSWER)
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = main_thread_ms(session)
    page.goto(url)
    page.wait_for_function("window.firstAnswer !== undefined")
    return page, session, page.evaluate("window.firstAnswer"), main_thread_ms(session) - before


def describe(values: list[float]) -> dict[str, float]:
    """Return mean, median and 95th percentile."""
    ranked = sorted(values)
    quantile = ranked[int(0.95 * (len(ranked) - 1))]
    return {
        "mean": round(statistics.mean(values), 2),
        "median": round(statistics.median(values), 2),
        "95 %": round(quantile, 2),
    }


def main() -> None:
    """Parse the arguments, measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("words", type=Path)
    parser.add_argument("--opens", type=int, default=9)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--expected", type=Path)
    args = parser.parse_args()
    with args.words.open(encoding="utf-8", newline="") as file:
        rows = [row[0] for row in csv.reader(file)][1 : args.count + 1]
    indices = list({word: index for index, word in enumerate(rows)}.values())
    with sync_playwright() as playwright:
        executable = next(path for path in BROWSERS if Path(path).exists())
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        url = args.page.resolve().as_uri()
        opens = []
        for _ in range(args.opens):
            page, _, *times = open_page(browser, url)
            opens.append(times)
            page.context.close()
        page, session, *_ = open_page(browser, url)
        before = main_thread_ms(session)
        results = page.evaluate(TYPE_WORDS, [rows[index] for index in indices])
        cpu = (main_thread_ms(session) - before) / len(results)
        record = {"page": args.page.name, "bytes": args.page.stat().st_size, "browser": browser.version}
        browser.close()
    if args.expected:
        outputs = args.expected.read_text("utf-8").splitlines()
        pairs = zip(results, (outputs[index] for index in indices), strict=True)
        record["changed"] = sum(result[0].split() != output.split() for result, output in pairs)
    figures = {"first_answer": [each[0] for each in opens], "first_answer_cpu": [each[1] for each in opens]}
    figures |= {"decode": [each[1] for each in results], "shown": [each[2] for each in results]}
    described = {name: describe(values) for name, values in figures.items()}
    print(json.dumps({**record, "words": len(results), **described, "cpu": round(cpu, 2)}))


if __name__ == "__main__":
    main()

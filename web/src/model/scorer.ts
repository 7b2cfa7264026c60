/** Scores that rank finished outputs: log-probability, length normalization and coverage penalty (Wu et al. 2016, equation 14). */

export interface ScoreSettings {
  readonly length_normalization: "none" | "average" | "gnmt";
  readonly length_penalty_alpha: number;
  readonly coverage_penalty: number;
}

/** Minimum coverage of a position, which keeps its logarithm finite. */
const MIN_COVERAGE = 1e-6;

/** Whether the score is the log-probability itself. */
export const isLogProbability = (settings: ScoreSettings): boolean => settings.length_normalization === "none" && settings.coverage_penalty === 0;

/** 1, |Y|, or ((5 + |Y|) / 6)^α */
export function lengthPenalty({ length_normalization: kind, length_penalty_alpha: alpha }: ScoreSettings, numSteps: number): number {
  const length = Math.max(1, numSteps);
  return kind === "none" ? 1 : kind === "average" ? length : Math.fround(((5 + length) / 6) ** alpha);
}

/** Score of an output, EOS included in its steps. `coverage` has the sum of the attention weights of each position. */
export function scoreOutput(settings: ScoreSettings, logProbability: number, numSteps: number, coverage: Float32Array): number {
  const score = Math.fround(logProbability / lengthPenalty(settings, numSteps));
  const isAttended = coverage.some((sum) => sum > 0);
  if (settings.coverage_penalty === 0 || !isAttended) return score;
  return coverage.reduce((sum, each) => sum + settings.coverage_penalty * Math.log(Math.min(1, Math.max(MIN_COVERAGE, each))), score);
}

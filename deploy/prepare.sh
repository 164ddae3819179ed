#!/bin/sh
# Migrate Dagster's database and set the limits of pools. Safe to repeat.
#
# Every pool is set here: a pool without a limit in the database gets the default of dagster.yaml only when the queue first
# looks at it, and that look starts all runs that wait for it. docs/decisions/0017-pools-and-writers.md says which limits
# may be higher. RUNS_AT_ONCE is the maximum number of concurrent runs.
set -eu

dagster instance migrate
for pool in memory_working memory_daily memory_weekly memory_monthly; do
  dagster instance concurrency set "$pool" "${RUNS_AT_ONCE:-2}"
done
for pool in memory_quarterly memory_yearly memory_marts; do
  dagster instance concurrency set "$pool" 1
done

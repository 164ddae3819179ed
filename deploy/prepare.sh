#!/bin/sh
# Brings Dagster's database up to what the installed Dagster needs, and sets the limits of pools. It may be run again.
#
# A pool gets the limit of dagster.yaml, 1, only when the queue first looks at it, which starts all that waits for it; so
# every pool is set here. Which may be higher, and why: docs/decisions/0017-pools-and-writers.md. RUNS_AT_ONCE is how
# many runs there can be at a time.
set -eu

dagster instance migrate
for pool in memory_working memory_daily memory_weekly memory_monthly; do
  dagster instance concurrency set "$pool" "${RUNS_AT_ONCE:-2}"
done
for pool in memory_quarterly memory_yearly memory_marts; do
  dagster instance concurrency set "$pool" 1
done

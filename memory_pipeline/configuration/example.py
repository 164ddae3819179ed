"""A configuration to start from: every key, what it means and what it is when it is left out."""

from __future__ import annotations

#: Keys behind ``#`` without a space are switched off; each may be switched on as it stands.
EXAMPLE = """\
# Which models make and read the memory, for whom, and for how much. In the lake this file is config/workspaces.yaml.
#
# All keys may be left out: without this file nothing calls a model. What is said in defaults holds for every workspace,
# what a workspace says for its agents. `completion` is for extraction, all summaries and injection; what a task says
# itself goes before it. A later section wins key by key, with one exception: a section that names a model says all
# about it, and inherits none of api_base, api_key, price, parameters, context_tokens, max_output_tokens and
# answer_format. So name the key wherever you name a model.
#
# A key is never written here. It is referred to: env:NAME, or file:/absolute/path.

defaults:
  # Requests under way at the same time, 1 to 256.
  max_concurrency: 16

  # What makes vectors: one for the whole lake. Another one means to make all vectors anew.
  embedding:
    model: openrouter/thenlper/gte-base   # LiteLLM's provider/model; fastembed/NAME runs here; or deterministic
    dimension: 768                        # length of its vectors; needed for every model but deterministic
    api_key: env:OPENROUTER_API_KEY       # left out: the provider's usual variable
    context_tokens: 512                   # tokens of a text that it takes; longer ones are cut off
    batch_size: 64                        # most texts of one request, 1 to 2,048

  # What writes text.
  completion:
    model: openrouter/openai/gpt-5-mini
    api_key: env:OPENROUTER_API_KEY
    #api_base: https://openrouter.ai/api/v1   # where the server is not the provider's own
    timeout_seconds: 60                   # longest wait for one request
    attempts: 4                           # tries in all
    backoff_seconds: 0.5                  # wait before the second; doubled before each further one
    temperature: 0                        # 0 to 2; null leaves it to the provider
    context_tokens: 32000                 # question and answer together; longer input is cut into chunks
    max_output_tokens: 4000               # longest answer
    answer_format: json_schema            # or json_object, or text, for models that know no schema
    #price: {input: 0.25, output: 2.0}    # US dollars for 1M tokens, where LiteLLM does not know them
    parameters:                           # passed to LiteLLM as they are; keys of models are refused here
      reasoning_effort: low

  # What finds facts in conversations: any key of completion, and two more.
  extraction:
    known_facts: 20                       # known facts that a question shows, 0 to 200; with 0, hours are asked at once
    # Instead of the built-in instructions. Placeholders: {first_day} {last_day} {agent}; other braces are doubled.
    #prompt: "Find what {agent} should remember of the conversations from {first_day} to {last_day}."

  # What summarizes: daily, weekly, monthly, quarterly, yearly, each with any key of completion, and two more.
  summaries:
    monthly:
      length: 3000                        # characters that a summary may have; null for the grain's default
      # Placeholders: {grain} {period} {first_day} {last_day} {length} {agent}
      #prompt: "Summarize {period} for {agent} in at most {length} characters."
    yearly:
      model: openrouter/openai/gpt-5      # a model is named, so its key is, too
      api_key: env:OPENROUTER_API_KEY

  # The graph of what is known: which predicates hold one value at a time, so that a new one ends the one before, and
  # which hold many. Beside the built-in ones, and inherited one by one: an agent may take back what its workspace says.
  graph:
    single_valued: [on_call, favourite_tool]
    multi_valued: [speaks, works_for]     # in snake_case; a predicate is in one of the two

  # What of the memory is put before the agent's model with a prompt: any key of completion, and five more.
  injection:
    enabled: true                         # false: nothing is, and the answer says so
    max_results: 5                        # things at most, 1 to 50
    max_tokens: 1000                      # how long they are together, 50 to 1,000,000
    rerank: deterministic                 # or none, or model: this section's model puts what was found into order
    entities: deterministic               # or model, which finds the people, places and things a prompt asks about
    #timeout_seconds: 5                   # whoever asks waits for so long at most, times attempts
    #attempts: 1

  # Durable memories: what an agent keeps beside the calendar, until it is revoked or something else takes its place.
  memories:
    kinds: null                           # null: all of fact, rule, instruction, observation, preference, procedure,
                                          # reflection, decision, plan and tool_output; or a list of those allowed
    point_in_time: false                  # true: all that it is told holds for a moment, and is doubted soon
    hot_entries: 20                       # lines of the index that is always loaded, 0 to 500
    hot_tokens: 3000                      # how long it is
    upkeep: rules                         # or model: completion's model merges duplicates, and says what is stale
    selection: rules                      # or model: injection's model chooses among the headers of what is kept
    imagining: rules                      # or model, which thinks of what should be looked for unasked

  # What each workspace may spend in a calendar month (UTC); at least one limit.
  budget:
    usd_per_month: 20
    tokens_per_month: 50000000
    when_spent: fall_back                 # deterministic models go on; wait: memory is made in another month

  # How long memory is kept, counted from the end of its hour, day and so on; all of it forever without this section. A
  # plan, or durations, or a plan and what differs from it: a number of h, d, w, mo, q, y, such as 48h or 6mo, or
  # forever. In each plan: working, daily, weekly, monthly, quarterly, yearly; the graph is kept forever.
  retention:
    plan: forever                         # or standard: conversations 30d, facts 365d, all else forever
    # or free: 48h 30d 6w 6mo 4q 2y; starter: 120h 60d 12w 12mo 8q 4y; pro: 240h 120d 24w 24mo 16q 8y
    #working: 60d                         # the next three in one, where they say nothing themselves
    #conversations: 90d                   # what was said: no longer than daily, or forever
    #facts: 2y                            # what it asserts
    #preferences: forever                 # preferences and instructions
    #daily: 2y                            # summaries: each for at least as long as those that it is made from
    #weekly: 2y
    #monthly: 5y
    #quarterly: 10y
    #yearly: forever
    #graph: forever                       # what the graph of what is known is made from

  # Whether Dagster shows a little of what was remembered beside what a run made. It keeps that in its own storage, from
  # which forgetting does not remove it.
  previews: true

workspaces:
  acme:
    completion: {api_key: env:ACME_KEY}   # acme pays for itself; a key like this serves all models of the provider
    embedding: {api_key: env:ACME_KEY}    # all that a workspace may say about the embedder
    budget: {usd_per_month: 100}          # the other keys of the budget are the defaults'
    retention: {plan: free, daily: 35d}   # a plan starts anew; without one, the other keys are the defaults'
    previews: false
    summaries:
      daily: {length: 1500}
    agents:                               # completion, extraction, summaries, graph, injection, memories, as above
      support:
        extraction: {known_facts: 50}
        graph: {multi_valued: [on_call]}  # the other predicates are as above
        injection: {rerank: model, entities: model}   # of the workspace's completion
        memories: {upkeep: model, kinds: [fact, rule, instruction, preference]}
      "2024-01-15":                       # ids that look like dates or numbers stand in quotes
        completion: {model: deterministic}    # no model is called for this agent
"""

"""A configuration to start from: every key with its meaning and its default."""

from __future__ import annotations

#: Keys after ``#`` without a space are commented out. Each is valid when uncommented.
EXAMPLE = """\
# Models, budgets and retention per workspace and agent. Save this file as config/workspaces.yaml in the lake.
#
# All keys are optional. Without this file no model is called. Workspaces inherit from defaults, agents from their
# workspace. `completion` sets the model of extraction, all summaries and injection; the section of a task overrides it.
# Sections are merged key by key, with one exception: a section with a model does not inherit api_base, api_key, price,
# parameters, context_tokens, max_output_tokens and answer_format. So set api_key wherever you set model.
#
# An api_key is always a reference, never the key itself: env:NAME, or file:/absolute/path.

defaults:
  # Concurrent requests to models, 1 to 256.
  max_concurrency: 16

  # The embedder, one for the whole lake. If you change it, all vectors are recomputed.
  embedding:
    model: openrouter/thenlper/gte-base   # LiteLLM's provider/model; or fastembed/NAME (local); or deterministic
    dimension: 768                        # length of the vectors; required for a hosted model
    api_key: env:OPENROUTER_API_KEY       # default: the provider's usual variable
    context_tokens: 512                   # maximum tokens of a text; longer texts are truncated
    batch_size: 64                        # texts per request, 1 to 2,048

  # The language model.
  completion:
    model: openrouter/openai/gpt-5-mini
    api_key: env:OPENROUTER_API_KEY
    #api_base: https://openrouter.ai/api/v1   # if the server is not the provider's own
    timeout_seconds: 60                   # of one request
    attempts: 4                           # including the first
    backoff_seconds: 0.5                  # wait before the second attempt; doubled before each further one
    temperature: 0                        # 0 to 2; null: the provider's default
    context_tokens: 32000                 # request and answer together; longer input is split into chunks
    max_output_tokens: 4000               # maximum tokens of an answer
    answer_format: json_schema            # or json_object, or text for models without structured output
    #price: {input: 0.25, output: 2.0}    # US dollars per 1M tokens, for models that LiteLLM does not know
    parameters:                           # passed to LiteLLM unchanged; API keys are rejected here
      reasoning_effort: low

  # Extraction of facts from conversations: any key of completion, and two more.
  extraction:
    known_facts: 20                       # known facts in a request, 0 to 200; with 0, hours are extracted in parallel
    # Replaces the built-in instructions. Placeholders: {first_day} {last_day} {agent}; double other braces.
    #prompt: "Find what {agent} should remember of the conversations from {first_day} to {last_day}."

  # Summaries: daily, weekly, monthly, quarterly, yearly, each with any key of completion, and three more.
  summaries:
    monthly:
      length: 3000                        # maximum characters of a summary; null: the grain's default
      minimum_tokens: 400                 # with fewer tokens of sources, rules summarise the period
      # Placeholders: {grain} {period} {first_day} {last_day} {length} {agent}
      #prompt: "Summarize {period} for {agent} in at most {length} characters."
    yearly:
      model: openrouter/openai/gpt-5      # with a model, set its api_key too
      api_key: env:OPENROUTER_API_KEY

  # Knowledge graph: predicates with one value at a time (a new value ends the previous one), and with many values.
  # They extend the built-in ones and are inherited one by one. An agent can override its workspace.
  graph:
    single_valued: [on_call, favourite_tool]
    multi_valued: [speaks, works_for]     # in snake_case; each predicate in one of the two lists

  # Memory that is injected into an agent's prompts: any key of completion, and seven more.
  injection:
    enabled: true                         # false: nothing is injected, and the answer says so
    max_results: 5                        # maximum items, 1 to 50
    max_tokens: 1000                      # token budget of all items, 50 to 1,000,000
    minimum_score: 0.11                   # items of memory that fit the prompt worse are left out, 0 to 1
    rerank: deterministic                 # or none, or model: this section's model reorders the results, or
                                          # cross_encoder: the model below scores each result for the prompt
    entities: deterministic               # or model: it finds the people, places and things in a prompt
    #timeout_seconds: 5                   # maximum wait of the caller, times attempts
    #attempts: 1
    cross_encoder:                        # inherited as a whole
      model: cohere/rerank-v3.5           # LiteLLM's provider/model for rerank; or fastembed/NAME (local)
      api_key: env:COHERE_API_KEY         # default: the provider's usual variable
      #api_base: http://localhost:7997    # of a server such as infinity/NAME or hosted_vllm/NAME
      context_tokens: 512                 # maximum tokens of the prompt and one result; longer ones are truncated
      timeout_seconds: 10                 # maximum wait of the caller, times attempts
      attempts: 1
      #price: {input: 0, request: 0.002}  # US dollars per 1M tokens and per request, if LiteLLM does not know them

  # Durable memories: valid until they are revoked or superseded, independent of the calendar.
  memories:
    kinds: null                           # null: all of fact, rule, instruction, observation, preference, procedure,
                                          # reflection, decision, plan, tool_output and conversation_summary; or a
                                          # list of allowed kinds
    point_in_time: false                  # true: all memories describe one moment and become stale soon
    decay: true                           # false: importance does not decay, and nothing is archived for it
    hot_entries: 20                       # lines of the hot index, which is always loaded, 0 to 500
    hot_tokens: 3000                      # its token budget
    consolidation: rules                  # or model: completion's model merges, compares and finds stale memories
    selection: rules                      # or model: injection's model selects memories by their headers
    imagining: rules                      # or model: it generates the queries of proactive recall

  # Limits of each workspace per calendar month (UTC); set at least one.
  budget:
    usd_per_month: 20
    tokens_per_month: 50000000
    #usd_per_user: 0.5                    # the same for each user and each group
    #tokens_per_user: 1000000
    when_spent: fall_back                 # use the deterministic models; or wait: postpone to another month

  # How long memory is kept, counted from the end of its hour, day and so on. Without this section nothing expires. Set
  # a plan, durations, or both: durations override the plan. A duration is a number of h, d, w, mo, q or y, such as 48h
  # or 6mo, or forever. Plans list working, daily, weekly, monthly, quarterly, yearly; the graph is kept forever.
  retention:
    plan: forever                         # or standard: conversations 30d, facts 365d, all else forever
    # or free: 48h 30d 6w 6mo 4q 2y; starter: 120h 60d 12w 12mo 8q 4y; pro: 240h 120d 24w 24mo 16q 8y
    #working: 60d                         # default of the next three
    #conversations: 90d                   # messages: no longer than daily, or forever
    #facts: 2y                            # extracted facts
    #preferences: forever                 # preferences and instructions
    #daily: 2y                            # summaries: each at least as long as the finer ones that it summarizes
    #weekly: 2y
    #monthly: 5y
    #quarterly: 10y
    #yearly: forever
    #graph: forever                       # operations of the knowledge graph

  # Whether each user, and each group of users, has a memory of its own. It is recorded for an agent when it first
  # writes for a user, and fixed from then on. Otherwise all users of an agent share the agent's memory.
  per_user: true

  # The clock on which "yesterday" is resolved, for messages that state neither an offset nor their user's time zone. By
  # default that of the lake.
  #timezone: Europe/Berlin

  # The language in which models write facts and summaries. By default that of the messages. Names, quotes and
  # the terms of graph facts are not translated.
  #language: German

  # Which conversations become memory, by patterns (* is any text) of their agent, conversation id, tags and source. The
  # first rule that fits counts, those of an agent before those of its workspace and these; without one, full. A
  # conversation may state its own `capture`; then the stricter of both counts.
  capture:
    #- {source: "cron:*", mode: read}     # memory is recalled, and nothing is stored
    #- {agent: "bot-*", tag: private, mode: none}   # nothing is recalled or stored

  # Whether Dagster shows samples of memory content with its runs. They are stored in Dagster's own storage, and erasure
  # does not remove them.
  previews: true

workspaces:
  acme:
    completion: {api_key: env:ACME_KEY}   # acme's own key, for all models of this provider
    embedding: {api_key: env:ACME_KEY}    # the only key of embedding that a workspace can set
    budget: {usd_per_month: 100}          # the other keys are inherited
    retention: {plan: free, daily: 35d}   # a plan replaces all inherited durations
    previews: false
    summaries:
      daily: {length: 1500}
    agents:                               # completion, extraction, summaries, graph, injection, memories, as above
      support:
        extraction: {known_facts: 50}
        graph: {multi_valued: [on_call]}  # the other predicates are inherited
        injection: {rerank: model, entities: model}   # the workspace's completion model
        memories: {consolidation: model, kinds: [fact, rule, instruction, preference]}
      "2024-01-15":                       # quote ids that look like dates or numbers
        completion: {model: deterministic}    # no model is called for this agent
"""

// Generated from docs/openapi.json by `make docs`; do not edit it by hand.
// sha256 of that document: 455a43e85a529d761b01a579c9589be830dfbbe2cb649954ed9ee387efbb4bc3

export interface paths {
    "/v1/memories": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List
         * @description Return everything, page by page, newest first. What is there at the first page is returned exactly once.
         */
        get: operations["list"];
        put?: never;
        /**
         * Add
         * @description Add what was said. It is durable when the method returns.
         *
         *     The trace of the receipt tells what was learned at once.
         */
        post: operations["add"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/memories/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get
         * @description Return what was said, a summary or a durable memory by its id. A memory that was forgotten is not found.
         */
        get: operations["get"];
        put?: never;
        post?: never;
        /**
         * Delete
         * @description Forget a durable memory. Searches do not find it; its history remains.
         */
        delete: operations["delete"];
        options?: never;
        head?: never;
        /**
         * Update
         * @description Write a new version of a memory; return its id. Old versions stay in the history.
         *
         *     What is not given stays as it is. New content derives title, hook, subject, predicate and object again, or
         *     removes them, unless they are given too. A revoked memory becomes active again. A memory that becomes factual
         *     loses its outcome.
         */
        patch: operations["update"];
        trace?: never;
    };
    "/v1/memories/{id}/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * History
         * @description Return all versions of a durable memory, oldest first; none if it is unknown.
         */
        get: operations["history"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/memories/{id}/sources": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Expand
         * @description Return a summary, a fact or a message with all its sources, down to the messages.
         *
         *     The id {summary id}#{n} follows only the summary's n-th point.
         */
        get: operations["expand"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/memories/{id}/trace": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Trace
         * @description Return what became of a message, or of each message of a conversation, oldest first.
         *
         *     It says whether a message waits or is loaded, what read it, what was learned from it (facts, graph facts,
         *     durable memories, lines of summaries), when a memory was last used, or why nothing was learned. Needs
         *     memory-pipeline[run].
         */
        get: operations["trace"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/remember": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Remember
         * @description Store a durable memory; return its id. A text that is stored already counts as stated again.
         */
        post: operations["remember"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/search": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Search
         * @description Return what was said and durable memories, of any age, best matches first, in one list.
         *
         *     A message and the memory made of it are one hit, the message.
         */
        post: operations["search"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/context": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Context
         * @description Return the context for a prompt. str() of it is the text for the model; empty if nothing was found.
         *
         *     It has what fits the query: durable memories, facts of the graph, messages and summaries. Lines of the hot
         *     index, the most important durable memories, fill the rest. The text is marked, so that it is not added again as
         *     something said.
         */
        post: operations["context"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/recall": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Recall
         * @description Return what memory holds about a question, best first, within one token budget.
         *
         *     It has the same items as context, except instructions that apply to anything and the hot index. If the
         *     question asks about a period as a whole, the points of its summaries come first, then graph facts about those
         *     whom it names, also by a relation ("my son"), then facts, points and durable memories by their score, less the
         *     price of their tokens. Fill, such as "Thanks!", is left out, and so is what fits much worse than the best.
         *     Nothing is repeated: a summary is not returned with one of its facts, unless the question asks about its
         *     period, nor a durable memory with the whole messages it comes from. A sentence that repeats a revoked memory
         *     word for word is left out. The same memory gives the same answer.
         */
        post: operations["recall"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/hot-index": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Hot index
         * @description Return the hot index: one line for each of the most important durable memories, for a system prompt.
         *
         *     now selects the last consolidation before this time; by default the newest.
         */
        get: operations["hot_index"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/forget": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Forget
         * @description Erase a conversation, an import, or everything of this user or agent, from all files.
         */
        post: operations["forget"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/correct": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Correct
         * @description Withdraw a statement that is wrong, or replace it, and make again everything that rests on it.
         *
         *     The message stays as it was said. The sentences on which the item rests are no evidence any more, for any later
         *     run, model or import of the same words; what somebody says later counts. Facts, graph facts, durable memories
         *     and all summaries that rest on these messages are made again, no other periods are, and consolidation decides
         *     anew about this memory. Needs memory-pipeline[run].
         */
        post: operations["correct"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/rollback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Rollback
         * @description Withdraw all messages of an import, or of a span of time in which they were received.
         *
         *     As with correct, the messages stay as they were said, and everything that rests on them is made again
         *     without them. They are not learned again if they are sent again. undo takes each back. Return a result
         *     for each memory that had such messages: of the user, of the user's groups, of the agent.
         */
        post: operations["rollback"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/corrections": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Corrections
         * @description Return all corrections of this memory, oldest first, with those that undo others.
         */
        get: operations["corrections"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/corrections/{id}/undo": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Undo
         * @description Undo a correction: what it withdrew counts again, and what rests on it is made again.
         */
        post: operations["undo"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/conversations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List conversations
         * @description Return the last conversations, newest first.
         */
        get: operations["list_conversations"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/conversations/{conversation_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get conversation
         * @description Return the messages of a conversation, oldest first; none if it is unknown.
         *
         *     Once the pipeline has processed them, hours in which only tools or the system speak are left out.
         */
        get: operations["get_conversation"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sessions/{session_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get session
         * @description Return all values by key.
         */
        get: operations["get_session"];
        put?: never;
        post?: never;
        /**
         * Clear session
         * @description Remove all values of all parts and the scratch pad; return how many there were. Short-term entries stay.
         *
         *     What the conversation was told counts as new again.
         */
        delete: operations["clear_session"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sessions/{session_id}/values/{key}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get session value
         * @description Return the value of a key, or default if there is none or it has expired.
         */
        get: operations["get_session_value"];
        /**
         * Put session value
         * @description Store a value in place of the one with its key; return its version.
         */
        put: operations["put_session_value"];
        post?: never;
        /**
         * Delete session value
         * @description Remove an entry; return whether it was there.
         */
        delete: operations["delete_session_value"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/graph/facts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Graph facts
         * @description Return the valid facts, newest first.
         */
        get: operations["graph_facts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/graph/facts/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Graph fact
         * @description Return a fact by its id, even if it has ended; None if it is unknown.
         */
        get: operations["graph_fact"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/graph/search": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Graph search
         * @description Return the facts that fit a text best, around the entities that it names.
         */
        post: operations["graph_search"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/graph/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Graph history
         * @description Return all facts with a subject, including ended ones, in the order in which they began.
         */
        get: operations["graph_history"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/graph/entities/{name}/facts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Graph facts about
         * @description Return the facts with an entity as source or target, newest first.
         */
        get: operations["graph_facts_about"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/graph/entities/{name}/neighbors": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Graph neighbors
         * @description Return the entities that facts connect to one, in either direction: nearest first, then by id.
         *
         *     A kind (Anna is_a person) is not a neighbour. Otherwise all entities of a kind would be neighbours.
         */
        get: operations["graph_neighbors"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/graph/entities/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Graph entity
         * @description Return the entity with a name or alias; None if it is unknown or has no valid fact.
         */
        get: operations["graph_entity"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/summaries/{grain}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List summaries
         * @description Return the newest count facts or summaries of a grain; see search_memory. Ties are sorted by id.
         */
        get: operations["list_summaries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/summaries/{grain}/{period}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get summary
         * @description Return the summaries of one period: of the agent, of the user and of the user's groups, as there are any.
         */
        get: operations["get_summary"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/receipts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Receipts
         * @description Return the ids of the newest receipts, newest first; see receipt.
         */
        get: operations["receipts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/receipts/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Receipt
         * @description Return what an earlier context or recall handed to a model, and what is known of it now.
         *
         *     id is the receipt_id of what it returned. None if it is unknown, is no longer kept, or is of another user or
         *     agent; see receipt.
         */
        get: operations["receipt"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Run
         * @description Process all pending data of the lake: facts, summaries of closed periods, graph, and durable memories.
         *
         *     Return a result for each grain, and the report of consolidation; first what became of short-term entries of
         *     sessions, if any was promoted or refused. Needs memory-pipeline[run]. Safe to repeat and to interrupt.
         *     Dagster does the same on a schedule. Marts, which only SQL reads, are built by memory-pipeline run, or by
         *     Dagster once a day. Once a day, small files are merged, and unneeded ones deleted, as by
         *     memory-pipeline vacuum.
         */
        post: operations["run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/operations/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Operation
         * @description Return long work with its state and, once it has ended, its result.
         */
        get: operations["operation"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/hooks/{event}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Hook
         * @description Remember what an event of a coding agent tells, and return what its hook prints. Plugins that `memory-pipeline install` writes call it.
         */
        post: operations["hook"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** AddArguments */
        AddArguments: {
            /**
             * Messages
             * @description a text that the user said; a message; or a list of texts and messages, oldest first. Messages and answers of OpenAI, LiteLLM, Anthropic, LangChain, Gemini, Bedrock and Vercel clients are accepted. The time of a message is its timestamp, or else created_at, date, ts or the like, if it is unambiguous: ISO 8601 with a zone, or seconds or milliseconds since 1970. Messages without a time were said now; the receipt names keys that look like times and were not read.
             */
            messages: string | {
                role: string;
                content: string;
                timestamp?: string;
            } | (string | {
                role: string;
                content: string;
                timestamp?: string;
            })[];
            /**
             * Conversation Id
             * @description the conversation, to continue it. A text and a single message are new, unless the id of the message is known. A list may repeat messages that are stored: see history. By default a new conversation begins; the receipt has its id.
             */
            conversation_id?: string | null;
            /**
             * Users
             * @description all users who took part. What is said in a group is found by its members alone.
             */
            users?: string | string[] | null;
            /**
             * Group Id
             * @description the group, if it has an id; its members may change.
             */
            group_id?: string | null;
            /**
             * Tags
             * @description labels of the conversation; a text is one of them.
             */
            tags?: string | string[] | null;
            /**
             * Source
             * @description where it comes from, such as slack.
             */
            source?: string | null;
            /**
             * History
             * @description whether a list repeats messages that are stored, so that only its new messages are added. By default it does if it goes on after the last stored message, or begins with the first one.
             */
            history?: boolean | null;
            /**
             * Now
             * @description the current time.
             */
            now?: string | null;
        };
        /** ContextArguments */
        ContextArguments: {
            /**
             * Query
             * @description the prompt, or the last messages of a conversation, oldest first; blank for the hot index alone.
             * @default
             */
            query?: string | string[];
            /**
             * Max Tokens
             * @description size of the text, estimated at 4 bytes a token, 50 to a million.
             * @default 1000
             */
            max_tokens?: number;
            /**
             * Conversation
             * @description the conversation, with conversation_id, tags or source, if its capture may be restricted by the configuration.
             */
            conversation?: {
                [key: string]: unknown;
            } | null;
            /**
             * Exclude
             * @description ids of items that the model has seen before.
             */
            exclude?: string | string[] | null;
            /**
             * Only New
             * @description leave out what earlier calls with the conversation_id returned within a day, in any process, and what was said in the conversation itself. The session of this id keeps what was told; its clear forgets it. Needs memory-pipeline[sessions].
             * @default false
             */
            only_new?: boolean;
            /**
             * Now
             * @description ignore everything after this time; by default the current time.
             */
            now?: string | null;
        };
        /** CorrectArguments */
        CorrectArguments: {
            /**
             * Id
             * @description of a message, a fact, a durable memory that was learned from messages, a graph fact, or a line of a summary: its id with # and the number of the line.
             */
            id: string;
            /**
             * Text
             * @description what was meant, in the words of the speaker; by default nothing replaces it.
             */
            text?: string | null;
            /**
             * Words
             * @description some of the wrong words, if the item says more than that: only the sentences with these words are withdrawn.
             */
            words?: string | null;
            /**
             * Reason
             * @description why, for corrections.
             */
            reason?: string | null;
            /**
             * Editor
             * @description who corrects it.
             * @default agent
             */
            editor?: string;
            /**
             * Dry Run
             * @description only return what would be made again: the blast radius.
             * @default false
             */
            dry_run?: boolean;
            /**
             * Now
             * @description the time of the correction.
             */
            now?: string | null;
        };
        /** ForgetArguments */
        ForgetArguments: {
            /**
             * Conversation Id
             * @description a conversation of this user or agent.
             */
            conversation_id?: string | null;
            /**
             * Source
             * @description all that came from a source, such as import:chatgpt: conversations, and memories and facts of the graph that were imported. What is erased does not come back if it is imported again; rollback withdraws messages without erasing them.
             */
            source?: string | null;
            /**
             * Everything
             * @description all memory of this user, also what the user said in groups; without a user, all of the agent, users included.
             * @default false
             */
            everything?: boolean;
            /**
             * Dry Run
             * @description only return what would be erased, what rests on it, and which reads handed it to a model.
             * @default false
             */
            dry_run?: boolean;
            /**
             * Now
             * @description the current time. What is said later remains.
             */
            now?: string | null;
        };
        /** GraphSearchArguments */
        GraphSearchArguments: {
            /**
             * Query
             * @description the text.
             */
            query: string;
            /**
             * Limit
             * @description 1 to 10,000; total of the result counts all facts around these entities.
             * @default 10
             */
            limit?: number;
            /**
             * Speaker
             * @description name of the speaker, whom "I" means; User by default.
             */
            speaker?: string | null;
            /**
             * Hops
             * @description how far to walk: 1 returns the facts of the entities, 2 also those of their neighbours, up to 3; 0 returns none.
             * @default 1
             */
            hops?: number;
            /**
             * At
             * @description only facts that were valid at this time; by default those that are valid now.
             */
            at?: string | null;
            /**
             * Now
             * @description the time from which ages count; the current time by default.
             */
            now?: string | null;
        };
        /**
         * HookEvent
         * @description What a coding agent hands to its hooks: Claude Code, Codex or Cursor. It may have more fields.
         */
        HookEvent: {
            /**
             * Session Id
             * @description the session.
             */
            session_id?: string | null;
            /**
             * Conversation Id
             * @description the session, as Cursor calls it.
             */
            conversation_id?: string | null;
            /**
             * Prompt
             * @description what the user says.
             */
            prompt?: string | null;
            /**
             * Last Assistant Message
             * @description what the model has answered.
             */
            last_assistant_message?: string | null;
            /**
             * Text
             * @description what the model has answered, as Cursor calls it.
             */
            text?: string | null;
        } & {
            [key: string]: unknown;
        };
        /** PutSessionValueArguments */
        PutSessionValueArguments: {
            /**
             * Value
             * @description any JSON up to 1 MB.
             */
            value: unknown;
            /**
             * Ttl
             * @description time to live, in seconds or as a timedelta, at most a day.
             * @default 3600
             */
            ttl?: number;
            /**
             * Now
             * @description the current time.
             */
            now?: string | null;
        };
        /** RecallArguments */
        RecallArguments: {
            /**
             * Query
             * @description the question, at most 10,000 characters, or the last messages of a conversation, oldest first.
             */
            query: string | string[];
            /**
             * Max Tokens
             * @description budget of the answer's text, estimated at 4 bytes a token; at most a million.
             * @default 1000
             */
            max_tokens?: number;
            /**
             * Minimum Score
             * @description leave out facts, points and durable memories with a lower score, 0 to 1; by default 0.11, as in search_memory.
             */
            minimum_score?: number | null;
            /**
             * Exclude
             * @description ids of items that were shown before. They are left out in their other forms too.
             */
            exclude?: string | string[] | null;
            /**
             * Hops
             * @description steps in the graph from the entities that the question names, and along links between memories, 0 to 3.
             * @default 1
             */
            hops?: number;
            /**
             * Now
             * @description ignore everything after this time; by default the current time.
             */
            now?: string | null;
            /**
             * Since
             * @description time of the oldest result: a date in the reader's time zone, or a time with its zone, also as ISO 8601 text. Summaries match if their period overlaps the range, their points if their day is in it.
             */
            since?: string | null;
            /**
             * Until
             * @description time of the newest result; a date includes its whole day.
             */
            until?: string | null;
            /**
             * Person
             * @description the speaker, or a name in the text; one word of the name is enough. Case and accents are ignored.
             */
            person?: string | null;
            /**
             * Tag
             * @description a tag of the conversation.
             */
            tag?: string | null;
            /**
             * Source
             * @description where the conversation comes from, as its writer said, such as slack. Summaries and memories, which are made of several messages, have no source.
             */
            source?: string | null;
            /**
             * Metadata
             * @description entries that the metadata of the message has: {"ticket": 7}. Values are equal as JSON.
             */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /**
             * Minimum Importance
             * @description minimum importance, 0 to 1.
             */
            minimum_importance?: number | null;
        };
        /** RememberArguments */
        RememberArguments: {
            /**
             * Text
             * @description the memory, at most 20,000 characters.
             */
            text: string;
            /**
             * Kind
             * @description fact, preference, instruction, rule, decision or another kind of durable memory.
             * @default fact
             * @enum {string}
             */
            kind?: "fact" | "rule" | "instruction" | "observation" | "preference" | "procedure" | "reflection" | "decision" | "plan" | "tool_output" | "conversation_summary";
            /**
             * Editor
             * @description the author of the change.
             * @default agent
             */
            editor?: string;
            /**
             * Now
             * @description the current time.
             */
            now?: string | null;
            /**
             * Title
             * @description its title; by default the first sentence of the content.
             */
            title?: string | null;
            /**
             * Hook
             * @description a line of at most 120 characters for the hot index; by default the beginning of the content.
             */
            hook?: string | null;
            /**
             * Subject
             * @description the person or thing it is about; by default the name at the beginning of the content, if any.
             */
            subject?: string | null;
            /**
             * Predicate
             * @description the relation, such as lives_in; without any of the three, that of a fact in plain words, such as "Anna lives in Porto."
             */
            predicate?: string | null;
            /**
             * Object
             * @description the object of a fact: a name or a value.
             */
            object?: string | null;
            /**
             * Importance
             * @description how important it is, 0 to 1; 0.5 by default.
             */
            importance?: number | null;
            /**
             * Confidence
             * @description how certain it is, 0 to 1; 1 by default.
             */
            confidence?: number | null;
            /**
             * Decay Rate
             * @description how fast its relevance fades, per day since its last use; 0 by default.
             */
            decay_rate?: number | null;
            /**
             * Is Point In Time
             * @description whether it describes the state of a moment, which will soon change, or one that lasts; by default as configured.
             */
            is_point_in_time?: boolean | null;
            /**
             * Memory Class
             * @description whether it states a fact (factual), or tells of an attempt and its outcome (experiential); by default factual without an outcome.
             */
            memory_class?: ("factual" | "experiential") | null;
            /**
             * Outcome Success
             * @description whether the experience ended well; by default unknown.
             */
            outcome_success?: boolean | null;
            /**
             * Tags
             * @description labels.
             */
            tags?: string | string[] | null;
            /**
             * Source Type
             * @description who said it: user, assistant, tool or import; or the operator's agent, the default, system or workflow. What an assistant, a tool or an import said never instructs.
             */
            source_type?: ("user" | "assistant" | "import" | "system" | "tool" | "workflow" | "agent") | null;
            /**
             * Context
             * @description the context of which it becomes an entry; see Contexts.
             */
            context?: string | null;
            /**
             * Key
             * @description the key of the entry. The next text with that key is its next version.
             */
            key?: string | null;
        };
        /** RollbackArguments */
        RollbackArguments: {
            /**
             * Source
             * @description the source of their conversations, such as import:chatgpt.
             */
            source?: string | null;
            /**
             * Since
             * @description only what was received from this time on.
             */
            since?: string | null;
            /**
             * Until
             * @description only what was received before this time.
             */
            until?: string | null;
            /**
             * Reason
             * @description why, for corrections.
             */
            reason?: string | null;
            /**
             * Editor
             * @description who withdraws them.
             * @default agent
             */
            editor?: string;
            /**
             * Dry Run
             * @description only return what would be made again.
             * @default false
             */
            dry_run?: boolean;
            /**
             * Now
             * @description the time of the correction.
             */
            now?: string | null;
        };
        /** RunArguments */
        RunArguments: {
            /** Now */
            now?: string | null;
        };
        /** SearchArguments */
        SearchArguments: {
            /**
             * Query
             * @description at most 10,000 characters; blank for the newest of what was said.
             */
            query: string;
            /**
             * Limit
             * @description 1 to 100 results.
             * @default 10
             */
            limit?: number;
            /**
             * Grain
             * @description working for what was said; daily to yearly for summaries.
             * @default working
             * @enum {string}
             */
            grain?: "working" | "daily" | "weekly" | "monthly" | "quarterly" | "yearly";
            /**
             * Tiers
             * @description all, or some of session, short_term, long_term and shared. Entries of sessions and pools that share words with the query come first; the filters do not apply to them.
             * @default long_term
             */
            tiers?: string | string[];
            /**
             * Sources
             * @description some of turns (what was said), memories (durable memories, with values that were written to the long-term tier, and promoted entries of sessions) and contexts (their entries); by default all.
             * @default all
             */
            sources?: string | string[];
            /**
             * Minimum Score
             * @description leave out hits of long-term memory with a lower score, 0 to 1; by default none.
             */
            minimum_score?: number | null;
            /**
             * Now
             * @description ignore everything after this time; by default the current time.
             */
            now?: string | null;
            /**
             * Since
             * @description time of the oldest result: a date in the reader's time zone, or a time with its zone, also as ISO 8601 text. Summaries match if their period overlaps the range, their points if their day is in it.
             */
            since?: string | null;
            /**
             * Until
             * @description time of the newest result; a date includes its whole day.
             */
            until?: string | null;
            /**
             * Person
             * @description the speaker, or a name in the text; one word of the name is enough. Case and accents are ignored.
             */
            person?: string | null;
            /**
             * Tag
             * @description a tag of the conversation.
             */
            tag?: string | null;
            /**
             * Source
             * @description where the conversation comes from, as its writer said, such as slack. Summaries and memories, which are made of several messages, have no source.
             */
            source?: string | null;
            /**
             * Metadata
             * @description entries that the metadata of the message has: {"ticket": 7}. Values are equal as JSON.
             */
            metadata?: {
                [key: string]: unknown;
            } | null;
        };
        /** UndoArguments */
        UndoArguments: {
            /**
             * Editor
             * @description who undoes it.
             * @default agent
             */
            editor?: string;
            /**
             * Now
             * @description the current time.
             */
            now?: string | null;
        };
        /** UpdateArguments */
        UpdateArguments: {
            /**
             * Content
             * @description the new content.
             */
            content?: string | null;
            /**
             * Kind
             * @description the new kind.
             */
            kind?: ("fact" | "rule" | "instruction" | "observation" | "preference" | "procedure" | "reflection" | "decision" | "plan" | "tool_output" | "conversation_summary") | null;
            /**
             * Editor
             * @description the author of the change.
             * @default agent
             */
            editor?: string;
            /**
             * Reason
             * @description why, at most 500 characters; shown with the history.
             */
            reason?: string | null;
            /**
             * Now
             * @description the time of the change; the current time by default.
             */
            now?: string | null;
            /**
             * Title
             * @description its title; by default the first sentence of the content.
             */
            title?: string | null;
            /**
             * Hook
             * @description a line of at most 120 characters for the hot index; by default the beginning of the content.
             */
            hook?: string | null;
            /**
             * Subject
             * @description the person or thing it is about; by default the name at the beginning of the content, if any.
             */
            subject?: string | null;
            /**
             * Predicate
             * @description the relation, such as lives_in; without any of the three, that of a fact in plain words, such as "Anna lives in Porto."
             */
            predicate?: string | null;
            /**
             * Object
             * @description the object of a fact: a name or a value.
             */
            object?: string | null;
            /**
             * Importance
             * @description how important it is, 0 to 1; 0.5 by default.
             */
            importance?: number | null;
            /**
             * Confidence
             * @description how certain it is, 0 to 1; 1 by default.
             */
            confidence?: number | null;
            /**
             * Decay Rate
             * @description how fast its relevance fades, per day since its last use; 0 by default.
             */
            decay_rate?: number | null;
            /**
             * Is Point In Time
             * @description whether it describes the state of a moment, which will soon change, or one that lasts; by default as configured.
             */
            is_point_in_time?: boolean | null;
            /**
             * Memory Class
             * @description whether it states a fact (factual), or tells of an attempt and its outcome (experiential); by default factual without an outcome.
             */
            memory_class?: ("factual" | "experiential") | null;
            /**
             * Outcome Success
             * @description whether the experience ended well; by default unknown.
             */
            outcome_success?: boolean | null;
            /**
             * Tags
             * @description labels.
             */
            tags?: string | string[] | null;
            /**
             * Source Type
             * @description who said it: user, assistant, tool or import; or the operator's agent, the default, system or workflow. What an assistant, a tool or an import said never instructs.
             */
            source_type?: ("user" | "assistant" | "import" | "system" | "tool" | "workflow" | "agent") | null;
        };
        /**
         * AddedReceipt
         * @description The receipt of add. It can tell what was learned at once.
         */
        AddedReceipt: {
            /** @description ids of the messages that were written. */
            accepted: string[];
            /** @description ids of the messages that were stored before. */
            repeated: string[];
            /** @description new journal files. */
            files: string[];
            /** @description number of messages from which recalled text was dropped. */
            recalled: number;
            /** @description number of messages that were dropped because their subject was erased later. */
            forgotten: number;
            /** @description number of messages that were dropped because all that was kept of their time has expired. */
            expired: number;
            /** @description number of messages that were not stored, because their conversation is not captured in full. */
            not_captured: number;
            /** @description number of messages that were left out, because they say nothing. */
            empty: number;
            /** @description keys of messages that look like times and were not read, because they may mean something else. */
            unread_times: string[];
            /** @description the conversation, as add returns it. */
            conversation_id: string;
            /** @description ids of the stored messages whose text was replaced. */
            edited: string[];
            message_ids: string[];
        };
        /**
         * Hit
         * @description One search result.
         */
        Hit: {
            /** @description id of the fact, summary or durable memory; expand accepts it. */
            id: string;
            /** @description the partition of the row; the grain of a durable memory is durable, that of an entry of a session or pool session. */
            grain: ("working" | "daily" | "weekly" | "monthly" | "quarterly" | "yearly") | ("durable" | "session");
            /** @description the partition of the row; the grain of a durable memory is durable, that of an entry of a session or pool session. */
            period: string;
            /** @description kind of a fact (turn, statement, …) or a durable memory (instruction, rule, …), or summary. */
            kind: string;
            /** @description the text; of a fact, it begins with the speaker. A query shortens a long message to the passage that answers, about 60 words; expand returns all of it. */
            content: string;
            /**
             * Format: date-time
             * @description of a summary, the half-open range that it covers, UTC; of a fact, both are the time it was said; of a durable memory, when it was first and last said.
             */
            starts_at: string;
            /**
             * Format: date-time
             * @description of a summary, the half-open range that it covers, UTC; of a fact, both are the time it was said; of a durable memory, when it was first and last said.
             */
            ends_at: string;
            /**
             * Format: date
             * @description the day of starts_at in the lake's time zone; of a durable memory, the day of ends_at.
             */
            date: string;
            /** @description a fact's messages, or a summary's facts or finer summaries. */
            source_ids: string[];
            /** @description the conversation of a fact. */
            conversation_id: string | null;
            /** @description how well it fits the query, 0 to 1, comparable between searches (calibration); 0 without a query. */
            score: number;
            /** @description with explain, the contribution of each signal (Weights); hits are ranked by the sum. */
            parts: {
                [key: string]: number;
            } | null;
            /** @description whether content is a passage of a longer text. */
            is_excerpt: boolean;
            /** @description a later hit among the ten best in which a user gives other numbers for the same thing, or None. */
            later: components["schemas"]["Later"] | null;
            /** @description the user or group whose memory it is from: user: or group: and an id; empty for the agent's own memory. */
            identity: string;
            /** @description who said it, to the user of the reader; None of a summary, which has the words of several, and of an entry of a session. */
            said_by: ("user" | "member" | "assistant" | "pasted" | "import" | "tool" | "operator") | null;
            /** @description where the conversation of a fact comes from, as its writer said, or None. */
            source: string | null;
            /** @description of the message of a fact, as its writer gave it. */
            metadata: {
                [key: string]: unknown;
            };
        };
        /**
         * Later
         * @description A later hit of the same search.
         */
        Later: {
            id: string;
            /** Format: date */
            date: string;
        };
        /**
         * StoredMemory
         * @description What was written.
         */
        StoredMemory: {
            /** @description its id. */
            id: string;
        };
        /**
         * DurableMemory
         * @description One version of a durable memory. The newest version also has the current status, temperature and counts.
         */
        DurableMemory: {
            /** @description shared by all versions: memory:{hour}:{32 hex digits}. */
            id: string;
            /** @description from 1; a change of the content or a repetition creates a new version. */
            version: number;
            /** @enum {string} */
            kind: "fact" | "rule" | "instruction" | "observation" | "preference" | "procedure" | "reflection" | "decision" | "plan" | "tool_output" | "conversation_summary";
            /** @description the topic, on one line. */
            title: string;
            /** @description one line of at most 120 characters, for the hot index. */
            hook: string;
            content: string;
            /** @description the content as a triple, if it is one. */
            subject: string | null;
            /** @description the content as a triple, if it is one. */
            predicate: string | null;
            /** @description the content as a triple, if it is one. */
            object: string | null;
            /** @description of a preference: the user, its name, and its value as JSON. An entry of a context has a key, and may have a value. */
            user_id: string | null;
            /** @description of a preference: the user, its name, and its value as JSON. An entry of a context has a key, and may have a value. */
            key: string | null;
            /** @description of a preference: the user, its name, and its value as JSON. An entry of a context has a key, and may have a value. */
            value: string | null;
            /** @description 0 to 1. The importance is as set; its decay is computed on demand, never stored. */
            importance: number;
            /** @description 0 to 1. The importance is as set; its decay is computed on demand, never stored. */
            confidence: number;
            /** @description decay of the relevance per day since the last use. */
            decay_rate: number;
            access_count: number;
            last_accessed_at: string | null;
            /** @description whether it describes one moment and becomes stale soon. */
            is_point_in_time: boolean;
            /** @enum {string} */
            memory_class: "factual" | "experiential";
            /** @description whether an experience ended well; None if unknown or partial, and of other memories. */
            outcome_success: boolean | null;
            /** @enum {string} */
            source_type: "user" | "assistant" | "import" | "system" | "tool" | "workflow" | "agent";
            /** @description the name of the context of which it is an entry. */
            context: string | null;
            /** @enum {string} */
            temperature: "hot" | "warm" | "cold";
            /** @enum {string} */
            status: "active" | "superseded" | "deprecated" | "archived";
            /** @description reason for the status or the temperature; None if they never changed. */
            status_reason: string | null;
            /** @description id of the memory that replaced it. */
            superseded_by: string | null;
            /** @description ids of the memories that were merged into it. */
            merged_ids: string[];
            /** @description source messages or events, and conversations, oldest first, at most the last 100. */
            source_ids: string[];
            /** @description source messages or events, and conversations, oldest first, at most the last 100. */
            conversation_ids: string[];
            /** @description sorted. */
            tags: string[];
            /** @description author of this version: conversation, consolidation, agent, or a name from the client. */
            editor: string;
            /** @description the event that created this version. */
            event_id: string;
            /** @description see match_key; statements with one of these keys update this memory. */
            match_keys: string[];
            /**
             * Format: date-time
             * @description when it was first stated, and last stated, updated or confirmed, UTC.
             */
            created_at: string;
            /**
             * Format: date-time
             * @description when it was first stated, and last stated, updated or confirmed, UTC.
             */
            updated_at: string;
            /**
             * Format: date-time
             * @description when its content or status last changed, UTC.
             */
            changed_at: string;
            /** @description when a model last found it not stale, UTC. */
            reviewed_at: string | null;
        };
        /**
         * Node
         * @description A summary, a point, a fact, a durable memory, a change or a message, with its sources.
         */
        Node: {
            /** @description its id; of a point, {summary id}#{n}. */
            id: string;
            /** @description message, working (a fact), graph (a graph fact), edit (a change of the graph), memory (a durable memory), event (a change of one), or the summary's grain. */
            what: string;
            /** @description the partition of the row. */
            period: string;
            content: string;
            /**
             * Format: date-time
             * @description when it was said; of a summary, the start of its period.
             */
            at: string;
            /** @description the rules or the prompt that produced it, with the version; None for a message. */
            method: string | null;
            /** @description known fields of a fact or a summary: model, prompt_version, fallback, tokens_in, tokens_out, cost (US dollars), code_version, embed_model. */
            provenance: {
                [key: string]: unknown;
            };
            /** @description in time order. */
            sources: components["schemas"]["Node"][];
            /** @description the user or group whose memory it is: user: or group: and an id; empty for the agent's own. */
            identity: string;
        };
        /**
         * MessageTrace
         * @description What became of a message.
         */
        MessageTrace: {
            /** @description the message, with its last text. */
            message: components["schemas"]["Message"];
            /** @description waiting in the journal: searches find it, and the pipeline has not loaded it; or loaded. */
            state: string;
            /** @description the rules, or the model, that looked for facts in it; None if nothing did yet. */
            read_by: string | null;
            /** @description facts, graph facts, durable memories and lines of summaries that rest on it. The message itself, which searches find as it was said, is not among them. */
            learned: components["schemas"]["LearnedItem"][];
            /** @description why nothing was learned; empty if something was. */
            why_nothing: string;
        };
        /**
         * Message
         * @description One validated message of a conversation.
         */
        Message: {
            id: string;
            scope: components["schemas"]["Scope"];
            conversation_id: string;
            /** @description the user who speaks, or whose conversation it is. */
            user_id: string | null;
            tags: string[];
            /** @description the id from the client, if any. */
            source_id: string | null;
            /** @description position, from 0, in the conversation as first written. */
            turn: number;
            /** @enum {string} */
            role: "user" | "assistant" | "system" | "tool";
            name: string | null;
            content: string;
            /**
             * Format: date-time
             * @description timestamp of the message, UTC.
             */
            sent_at: string;
            /**
             * Format: date-time
             * @description when the journal received it, UTC.
             */
            received_at: string;
            /** @description the members of the group, if the scope is a group's. */
            users: string[];
            /** @description the speaker's offset from UTC in minutes, east positive; None if the timestamp does not say it. */
            utc_offset: number | null;
            /** @description where the conversation comes from, such as slack or cron:nightly, if stated. */
            source: string | null;
            /** @description the writer's own JSON object as text with sorted keys, if any. */
            metadata: string | null;
            /** @description what the writer removed from the content, such as api_key. */
            redactions: string[];
            /** @description n, for the n-th message of its conversation with the same role, name, time and text; None for the first. */
            occurrence: number | null;
            /** @description the first text of an edited message; None if it was not edited, or if only an edit of it is known. */
            original: string | null;
            /** @description its later texts, oldest first. The last one is its content. */
            edits: components["schemas"]["TextEdit"][];
        };
        /**
         * Scope
         * @description An agent's own memory, or that of a user or a group.
         */
        Scope: {
            /** @description the agent. Both are opaque: see label_of. */
            workspace_id: string;
            /** @description the agent. Both are opaque: see label_of. */
            agent_id: string;
            /** @description user: or group: and an id, or users: and a digest of the members; empty for the agent's own memory. */
            identity: string;
        };
        /**
         * TextEdit
         * @description A later text of a message, and when the journal received it, UTC.
         */
        TextEdit: {
            content: string;
            /** Format: date-time */
            received_at: string;
        };
        /**
         * LearnedItem
         * @description What was made of a message.
         */
        LearnedItem: {
            /** @description its id, which expand accepts. */
            id: string;
            /** @description turn for the message as it was said, fact, graph, memory, or the grain of a summary, which has a line that rests on the message. */
            what: string;
            /** @description its text. */
            content: string;
            /** @description when this memory was last handed to a model, UTC; None if it was not, or is no durable memory. */
            used_at: string | null;
        };
        /**
         * InjectedContext
         * @description Context for a prompt.
         */
        InjectedContext: {
            /** @description the chosen items in the order of the block. */
            parts: components["schemas"]["Recalled"][];
            /** @description number of items found but not chosen. */
            left_out: number;
            /** @description error messages, by failed source or model. The other sources still answered. */
            troubles: {
                [key: string]: string;
            };
            /** @description of the receipt (receipt); empty without items, and if receipts are off. */
            receipt_id: string;
            block: string;
            tokens: number;
        };
        /**
         * Recalled
         * @description One item of a recall or of an injected context.
         */
        Recalled: {
            /** @description of a fact, a point of a summary ({summary id}#{n}), a durable memory or a graph fact; expand accepts it. Of a document, its id or number. */
            id: string;
            /** @description the grain of a fact or a summary; durable, graph or document. */
            grain: ("working" | "daily" | "weekly" | "monthly" | "quarterly" | "yearly") | ("durable" | "graph" | "document");
            /** @description the partition of the row; empty for a document. */
            period: string;
            /** @description the day it was said, in the reader's time zone; of a point without a day, the first day of its period; of a durable memory, the day it was last said, updated or confirmed; of a graph fact, the day it began. None for documents and lines of the hot index. */
            date: string | null;
            /** @description the text, without its date and notes; may have several lines. */
            content: string;
            /** @description messages of a fact; messages and changes of a durable memory; of a point, its own id. */
            source_ids: string[];
            /** @description how well it fits the question, 0 to 1, comparable between questions; of a graph fact, that of the memory or message beside which it ranks; 0 for documents and lines of the hot index. */
            score: number;
            /** @description kind of a fact or a durable memory. */
            kind: string | null;
            /** @description a note that a durable memory may have changed since; also on items that say the same. */
            warning: string | null;
            /** @description whether content is a passage of a longer text. */
            is_excerpt: boolean;
            /** @description the user or group whose memory it is from: user: or group: and an id; empty for the agent's own memory. */
            identity: string;
            /** @description the time it was said, if known; orders the items of a day. */
            said_at: string | null;
            /** @description the time in which a graph fact held. */
            when: string;
            /** @description the id of a document, shown before the text. */
            label: string;
            /** @description the sum of the signals by which the items of one question are ranked. */
            strength: number;
            /**
             * @description who said it. A durable memory of another than the user or the operator is shown with who said it, under a heading of its own.
             * @enum {string}
             */
            said_by: "user" | "member" | "assistant" | "pasted" | "import" | "tool" | "operator";
        };
        /**
         * HotEntry
         * @description A line of the hot index.
         *
         *     title and hook are on one line. tokens counts the whole line, including the line break. What neither the user
         *     nor the operator said is shown with who said it (said_by).
         */
        HotEntry: {
            id: string;
            /** @enum {string} */
            kind: "fact" | "rule" | "instruction" | "observation" | "preference" | "procedure" | "reflection" | "decision" | "plan" | "tool_output" | "conversation_summary";
            title: string;
            hook: string;
            tokens: number;
            /** @enum {string} */
            said_by: "user" | "member" | "assistant" | "pasted" | "import" | "tool" | "operator";
        };
        /**
         * ErasureReport
         * @description The receipt of an erasure.
         */
        ErasureReport: {
            /** @description in clear. */
            subject: unknown;
            /**
             * Format: date-time
             * @description the cutoff, UTC.
             */
            at: string;
            /** @description the lake's address. */
            lake: string;
            /** @description ids of the tombstones that reject new data of the subject. */
            tombstones: unknown[];
            removed: components["schemas"]["Removed"][];
            /** @description keys of the recomputed periods by grain. */
            remade: {
                [key: string]: string[];
            };
            /** @description hexadecimal parts of the removed ids, sorted. */
            ids: unknown[];
            /** @description the salt of the digests. */
            salt: unknown;
            /** @description digests of removed texts of at least 24 characters, sorted. */
            contents: unknown[];
            /** @description number and size of the deleted files. */
            files: number;
            /** @description number and size of the deleted files. */
            bytes: number;
            /** @description descriptions of data that the erasure does not reach. */
            not_covered: string[];
        };
        /**
         * Removed
         * @description Items removed from one place.
         */
        Removed: {
            /** @description a table's name, or journal, quarantine, calls, index, collections, sessions. */
            place: string;
            /** @description a description of the items. */
            what: string;
            count: number;
            /** @description sorted; for the index, the names of its tables. */
            partitions: string[];
        };
        /**
         * ErasurePreview
         * @description The data of a subject in the lake, before an erasure.
         */
        ErasurePreview: {
            /** @description rows, messages and records by place. */
            counts: {
                [key: string]: number;
            };
            scopes: components["schemas"]["Scope"][];
            /** @description sorted keys of the hours of the messages. */
            hours: string[];
            /** @description ids of some of the messages, facts and memory events. */
            sample: string[];
            /** @description what rests on it; None if only the data was counted. */
            radius: components["schemas"]["BlastRadius"] | null;
        };
        /**
         * BlastRadius
         * @description What rests on messages.
         */
        BlastRadius: {
            /** @description facts, graph facts, durable memories and lines of summaries that rest on them. They are made again, and some may stay as they are. */
            rests_on: components["schemas"]["LearnedItem"][];
            /** @description keys of the hours and periods that are made again, by grain. */
            partitions: {
                [key: string]: string[];
            };
            /** @description the reads that handed any of it to a model, oldest first, as long as their receipts are kept. */
            handed_over: components["schemas"]["PastContext"][];
        };
        /**
         * PastContext
         * @description A read that handed items to a model.
         */
        PastContext: {
            /** @description for receipt. */
            receipt_id: string;
            /**
             * Format: date-time
             * @description when the read began, UTC.
             */
            at: string;
            /** @description the agent that read. */
            agent_id: string;
            /** @description context, inject_knowledge or recall. */
            operation: string;
            /** @description the conversation for which it was read, if one was given. */
            conversation_id: string | null;
            /** @description the items that were asked about, as they were handed over. */
            texts: string[];
        };
        /**
         * BackgroundWork
         * @description Work that goes on in the background.
         */
        BackgroundWork: {
            /** @description its id. */
            id: string;
            /** @description of the route that began it. */
            name: string;
            /**
             * @description whether it goes on.
             * @enum {string}
             */
            status: "running" | "succeeded" | "failed";
            /**
             * Format: date-time
             * @description times, UTC.
             */
            started_at: string;
            /** @description times, UTC. */
            ended_at: string | null;
            /** @description what the route returns for it; null while it goes on, and if it failed. */
            result: unknown;
            /** @description why it failed, by RFC 9457. */
            problem: {
                [key: string]: unknown;
            } | null;
        };
        /**
         * CorrectionResult
         * @description What a correction withdraws, and what rests on it.
         */
        CorrectionResult: {
            /** @description of the correction, to undo it; None in a plan. */
            id: string | null;
            /** @description the parts of messages that are withdrawn, by message. */
            quotes: {
                [key: string]: string[];
            };
            /** @description what replaces them. */
            text: string | null;
            /** @description what rests on these messages: its rests_on, partitions and handed_over. */
            radius: components["schemas"]["BlastRadius"];
            /** @description the user or group whose memory it is, as of a hit; empty for the agent's own. */
            identity: string;
        };
        /**
         * Correction
         * @description A withdrawal of what messages state, or the undoing of one.
         */
        Correction: {
            /** @description the memory. */
            scope: components["schemas"]["Scope"];
            /** @description the messages with the withdrawn statement, oldest first. */
            message_ids: string[];
            /** @description what is withdrawn: parts of their texts; none if the messages are withdrawn as a whole. */
            quotes: string[];
            /** @description what replaces the first part; None if nothing does. */
            text: string | null;
            /** @description why. */
            reason: string | null;
            /** @description who corrected it. */
            editor: string;
            /**
             * Format: date-time
             * @description when, UTC. A message that says the same later counts.
             */
            at: string;
            /** @description the id of the correction that this one undoes; it then has no quotes. */
            undoes: string | null;
            id: string;
        };
        /**
         * Conversation
         * @description A conversation.
         */
        Conversation: {
            /** @description its id. */
            id: string;
            /**
             * Format: date-time
             * @description when its last message was said, or the one that matches a query best.
             */
            last_at: string;
            /** @description this message. */
            content: string;
            /** @description the user or group whose memory it is in: user: or group: and an id; empty for the agent's own. */
            identity: string;
        };
        /**
         * RemovedValues
         * @description What was removed.
         */
        RemovedValues: {
            /** @description number of entries. */
            count: number;
        };
        /**
         * SessionValue
         * @description A value of a session.
         */
        SessionValue: {
            /** @description any JSON. */
            value: unknown;
        };
        /**
         * GraphFact
         * @description A fact of the graph.
         *
         *     since and until are the days it began and ended, in the lake's time zone. score is the relevance to the
         *     search, or 0. identity is the user or group whose memory it is from: user: or group: and an id; empty for
         *     the agent's own memory. said_by is who said it last, to the user of the reader. attributes are those of the
         *     messages that assert it, if they were asked for.
         */
        GraphFact: {
            /** @description hash of scope, source, label, target, start, and first evidence. */
            id: string;
            /** @description names in comparable form, with aliases resolved. */
            source_id: string;
            /** @description from the newest evidence. */
            source: string;
            /** @description from the newest evidence. */
            label: string;
            /** @description names in comparable form, with aliases resolved. */
            target_id: string;
            /** @description from the newest evidence. */
            target: string;
            /** @description 0 to 1, the highest of its evidence. */
            confidence: number;
            /** @description 0 to 1: as stated, or else 1 − 2⁻ⁿ for n messages of evidence. */
            weight: number;
            /**
             * Format: date-time
             * @description when it was first and last stated, UTC.
             */
            valid_from: string;
            /** @description when it ended, UTC; None if it is valid. */
            valid_to: string | null;
            /** @description id of the triple that replaced it, if any. */
            superseded_by: string | null;
            /** @description ids of the messages or edits that assert it; oldest first. */
            evidence: string[];
            /** @description of the newest evidence; the conversation is None if that is an edit. */
            conversation_id: string | null;
            /**
             * Format: date-time
             * @description when it was first and last stated, UTC.
             */
            updated_at: string;
            /** @description of the newest evidence; the conversation is None if that is an edit. */
            origin: string | null;
            /** Format: date */
            since: string;
            until: string | null;
            score: number;
            identity: string;
            /** @enum {string} */
            said_by: "user" | "member" | "assistant" | "pasted" | "import" | "tool" | "operator";
            attributes: components["schemas"]["Attributes"] | null;
        };
        /**
         * Attributes
         * @description What the writers of some messages said about them.
         *
         *     sources are where their conversations come from, the latest last. Of two values of an entry of metadata, the
         *     later one counts.
         */
        Attributes: {
            sources: string[];
            metadata: {
                [key: string]: unknown;
            };
        };
        /**
         * Neighbor
         * @description An entity that facts connect to another one, in distance steps.
         *
         *     attributes are those of the messages that assert its valid facts, if they were asked for.
         */
        Neighbor: {
            name: string;
            distance: number;
            attributes: components["schemas"]["Attributes"] | null;
        };
        /**
         * Entity
         * @description An entity of the graph.
         */
        Entity: {
            /** @description the name in its compared form. */
            id: string;
            /** @description the name in its newest spelling. */
            name: string;
            /** @description other names in their compared form, sorted. */
            aliases: string[];
            /** @description number of current facts with this entity as source or target. */
            facts: number;
            /**
             * Format: date-time
             * @description when the newest of these facts was stated.
             */
            updated_at: string;
            /** @description of the messages that assert these facts, if they were asked for. */
            attributes: components["schemas"]["Attributes"] | null;
        };
        /**
         * ReadReceipt
         * @description What a model was handed by one read.
         */
        ReadReceipt: {
            id: string;
            /**
             * Format: date-time
             * @description when the read began, UTC.
             */
            at: string;
            /** @description context, inject_knowledge or recall. */
            operation: string;
            /** @description the time of which memory was asked; None if it was the present. */
            as_of: string | null;
            /** @description the conversation for which it was read, if one was given. */
            conversation_id: string | null;
            /** @description the text for the model, without items that were erased or expired since. */
            text: string;
            /** @description in the order of the text; of a recall, the best first. */
            items: components["schemas"]["HandedItem"][];
            /** @description the models that helped to choose, if any; tokens_in, tokens_out and cost (US dollars, None if unknown) are those of the requests to them. */
            model: string | null;
            tokens_in: number;
            tokens_out: number;
            cost: number | null;
        };
        /**
         * HandedItem
         * @description An item that a model was handed.
         */
        HandedItem: {
            /** @description as in Recalled; empty if the item was erased or expired. */
            id: string;
            /** @description as there. */
            grain: string;
            /** @description what was handed over; empty if it was erased or expired since. */
            text: string;
            /** @description the messages that it rests on, as far as they are known. */
            message_ids: string[];
            /**
             * @description what became of it.
             * @enum {string}
             */
            state: "held" | "changed" | "ended" | "withdrawn" | "expired" | "erased" | "gone" | "document";
            /** @description what memory says in its place, if that is something else. */
            now: string;
        };
        /**
         * Problem
         * @description An error, by RFC 9457.
         */
        Problem: {
            /** @description the kind of error, such as urn:memory-pipeline:problem:invalid-input. */
            type: string;
            title: string;
            status: number;
            /** @description what is wrong, and what to do about it. */
            detail: string;
            /** @description the invalid parts of the request. */
            errors?: {
                pointer: string;
                detail: string;
            }[];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    list: {
        parameters: {
            query?: {
                /** @description memory for durable memories, fact for what was said, summary; by default all of them, in this order. */
                kind?: ("memory" | "fact" | "summary") | null;
                /** @description time of the oldest item. */
                since?: string | null;
                /** @description the cursor of the page before. */
                cursor?: string | null;
                /** @description 1 to 100 items. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["Hit"][];
                        /** @description selects the next page; null if this is the last one. */
                        cursor: string | null;
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    add: {
        parameters: {
            query?: never;
            header?: {
                /** @description Identifies this call. A call with the key of an earlier one adds nothing: give it to a retry. */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AddArguments"];
            };
        };
        responses: {
            /** @description The result. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AddedReceipt"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get: {
        parameters: {
            query?: {
                /** @description ignore everything after this time; by default the current time. */
                now?: string | null;
            };
            header?: never;
            path: {
                /** @description its id. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Hit"] | null;
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete: {
        parameters: {
            query?: {
                /** @description the current time. What is said later remains. */
                now?: string | null;
            };
            header?: never;
            path: {
                /** @description of a durable memory. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    update: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description the id of the memory. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["UpdateArguments"] | null;
            };
        };
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StoredMemory"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    history: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["DurableMemory"][];
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    expand: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Node"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    trace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description the id of a message, as add returns it, or of a conversation. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["MessageTrace"][];
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    remember: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RememberArguments"];
            };
        };
        responses: {
            /** @description The result. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StoredMemory"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    search: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SearchArguments"];
            };
        };
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["Hit"][];
                        /** @description their number without the limit. */
                        total: number;
                        /** @description the number of better ones before them. */
                        offset: number;
                        /** @description the number of those that only the range of days leaves out. */
                        older: number;
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    context: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ContextArguments"] | null;
            };
        };
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InjectedContext"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    recall: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RecallArguments"];
            };
        };
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["Recalled"][];
                        /** @description the text for a prompt. */
                        text: string;
                        /** @description size of the text, estimated at 4 bytes a token. */
                        tokens: number;
                        /** @description of the receipt; empty without items, and if receipts are off. */
                        receipt_id: string;
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    hot_index: {
        parameters: {
            query?: {
                now?: string | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["HotEntry"][];
                        /** @description the text for a prompt. */
                        text: string;
                        /** @description size of the text, estimated at 4 bytes a token. */
                        tokens: number;
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    forget: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ForgetArguments"] | null;
            };
        };
        responses: {
            /** @description The plan, of a dry run. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErasureReport"] | components["schemas"]["ErasurePreview"] | null;
                };
            };
            /** @description The work goes on. */
            202: {
                headers: {
                    /** @description The operation. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BackgroundWork"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    correct: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CorrectArguments"];
            };
        };
        responses: {
            /** @description The plan, of a dry run. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CorrectionResult"];
                };
            };
            /** @description The work goes on. */
            202: {
                headers: {
                    /** @description The operation. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BackgroundWork"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    rollback: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RollbackArguments"] | null;
            };
        };
        responses: {
            /** @description The plan, of a dry run. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["CorrectionResult"][];
                    };
                };
            };
            /** @description The work goes on. */
            202: {
                headers: {
                    /** @description The operation. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BackgroundWork"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    corrections: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["Correction"][];
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    undo: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description of the correction, as correct and corrections return it. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["UndoArguments"] | null;
            };
        };
        responses: {
            /** @description The work goes on. */
            202: {
                headers: {
                    /** @description The operation. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BackgroundWork"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_conversations: {
        parameters: {
            query?: {
                /** @description 1 to 10,000. */
                limit?: number;
                /** @description the current time. */
                now?: string | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["Conversation"][];
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_conversation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                conversation_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["Message"][];
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_session: {
        parameters: {
            query?: {
                now?: string | null;
            };
            header?: never;
            path: {
                /** @description the session. That of another user or agent with the same id is another session. */
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    clear_session: {
        parameters: {
            query?: {
                now?: string | null;
            };
            header?: never;
            path: {
                /** @description the session. That of another user or agent with the same id is another session. */
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RemovedValues"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_session_value: {
        parameters: {
            query?: {
                now?: string | null;
            };
            header?: never;
            path: {
                /** @description the session. That of another user or agent with the same id is another session. */
                session_id: string;
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionValue"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    put_session_value: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description the session. That of another user or agent with the same id is another session. */
                session_id: string;
                /** @description a text of 1 to 256 characters without control characters. */
                key: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PutSessionValueArguments"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_session_value: {
        parameters: {
            query?: {
                now?: string | null;
            };
            header?: never;
            path: {
                /** @description the session. That of another user or agent with the same id is another session. */
                session_id: string;
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    graph_facts: {
        parameters: {
            query?: {
                /** @description 1 to 10,000. */
                limit?: number;
                /** @description only facts of messages from this source, such as slack or import:zep. */
                from_source?: string | null;
                /** @description only facts of messages whose metadata has these entries: {"ticket": 7}. Values are equal as JSON. */
                metadata?: string | null;
                /** @description also return the sources and the metadata of the messages that assert them. */
                attributes?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["GraphFact"][];
                        /** @description their number without the limit. */
                        total: number;
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    graph_fact: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GraphFact"] | null;
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    graph_search: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["GraphSearchArguments"];
            };
        };
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["GraphFact"][];
                        /** @description their number without the limit. */
                        total: number;
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    graph_history: {
        parameters: {
            query: {
                /** @description a name or an alias, in any case. */
                subject: string;
                /** @description only facts with this predicate. */
                predicate?: string | null;
                /** @description 1 to 10,000. Of more, the last ones are returned. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["GraphFact"][];
                        /** @description their number without the limit. */
                        total: number;
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    graph_facts_about: {
        parameters: {
            query?: {
                /** @description 1 to 10,000. */
                limit?: number;
                /** @description only facts that were valid at this time, as known today. */
                at?: string | null;
                /** @description only facts of messages from this source, such as slack or import:zep. */
                from_source?: string | null;
                /** @description only facts of messages whose metadata has these entries: {"ticket": 7}. Values are equal as JSON. */
                metadata?: string | null;
                /** @description also return the sources and the metadata of the messages that assert them. */
                attributes?: boolean;
            };
            header?: never;
            path: {
                /** @description a name or an alias, in any case. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["GraphFact"][];
                        /** @description their number without the limit. */
                        total: number;
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    graph_neighbors: {
        parameters: {
            query?: {
                /** @description maximum distance, 1 to 6 steps. */
                depth?: number;
                /** @description 1 to 10,000. */
                limit?: number;
                /** @description walk only through facts of messages from this source, such as slack or import:zep. */
                from_source?: string | null;
                /** @description walk only through facts of messages whose metadata has these entries: {"ticket": 7}. Values are equal as JSON. */
                metadata?: string | null;
                /** @description also return the sources and the metadata of the messages that assert the entities' facts. */
                attributes?: boolean;
            };
            header?: never;
            path: {
                /** @description a name or an alias, in any case. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["Neighbor"][];
                        /** @description their number without the limit. */
                        total: number;
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    graph_entity: {
        parameters: {
            query?: {
                /** @description also return the sources and the metadata of the messages that assert its facts. */
                attributes?: boolean;
            };
            header?: never;
            path: {
                /** @description a name or an alias, in any case. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Entity"] | null;
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_summaries: {
        parameters: {
            query?: {
                count?: number;
                since?: string | null;
                until?: string | null;
            };
            header?: never;
            path: {
                grain: "working" | "daily" | "weekly" | "monthly" | "quarterly" | "yearly";
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["Hit"][];
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_summary: {
        parameters: {
            query?: {
                /** @description ignore everything after this time; by default the current time. */
                now?: string | null;
            };
            header?: never;
            path: {
                /** @description daily, weekly, monthly, quarterly or yearly. */
                grain: "working" | "daily" | "weekly" | "monthly" | "quarterly" | "yearly";
                /** @description its key: 2024-01-15, 2024-W03, 2024-01, 2024-Q1 or 2024. */
                period: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["Hit"][];
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    receipts: {
        parameters: {
            query?: {
                /** @description only those for a conversation, such as those of a client that wrap returned. */
                conversation_id?: string | null;
                /** @description 1 to 10,000. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: string[];
                    };
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    receipt: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ReadReceipt"] | null;
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    run: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RunArguments"] | null;
            };
        };
        responses: {
            /** @description The work goes on. */
            202: {
                headers: {
                    /** @description The operation. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BackgroundWork"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description its id. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The operation. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BackgroundWork"];
                };
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    hook: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description its name. */
                event: "SessionStart" | "UserPromptSubmit" | "Stop" | "PreCompact" | "SessionEnd" | "sessionStart" | "beforeSubmitPrompt" | "afterAgentResponse" | "preCompact" | "sessionEnd";
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HookEvent"];
            };
        };
        responses: {
            /** @description What the hook prints. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, never>;
                };
            };
            /** @description The hook prints nothing. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Bad Request */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Found */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Conflict */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Content Too Large */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Unprocessable Content */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Internal Server Error */
            500: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Not Implemented */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}

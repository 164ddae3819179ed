"""Memory behind the interfaces of other frameworks. Each module imports one framework, and needs the extra of its name.

- ``anthropic``, ``anthropic_async``: Anthropic's memory tool, as files below ``/memories``.
- ``openai_agents``: a session of the OpenAI Agents SDK.
- ``llama_index``: a chat store of LlamaIndex.
- ``crewai``: the storage of CrewAI's memory.

The store of LangGraph is :mod:`memory_pipeline.tools.langgraph`.
"""

"""The state of OpenAI's Responses API: stored responses and `previous_response_id`, conversations, background responses
and compaction."""

"""What clients of this protocol leave with whoever serves them: answers, conversations, summaries."""

from __future__ import annotations

from toolwire.keeping import Keeping
from toolwire.protocols.openai_responses.details import kept_answers, kept_lists, kept_requests, summaries
from toolwire.protocols.openai_responses.details.tap import StreamTap, number_frames, renumber_frames

KEEPING = Keeping(
    peek=kept_requests.peek_request,
    stateless=kept_requests.is_stateless,
    errand=kept_lists.match_state_endpoint,
    wants=kept_requests.read_state_options,
    items=kept_requests.read_items,
    expanded=kept_requests.expand_request,
    read_page=kept_lists.read_page,
    write_page=kept_lists.write_page,
    write_item=kept_requests.write_listed_item,
    write_deleted=kept_lists.write_deleted,
    read_conversation=kept_lists.read_conversation,
    read_metadata=kept_lists.read_metadata,
    read_added=kept_lists.read_added_items,
    write_conversation=kept_lists.write_conversation,
    named=kept_requests.add_missing_ids,
    renewed=kept_requests.replace_ids,
    referred=kept_requests.find_references,
    resolved=kept_requests.resolve_references,
    new=kept_answers.make_id,
    begun=kept_answers.write_pending_response,
    ended=kept_answers.write_ended_response,
    told=kept_answers.write_state_fields,
    unkept=kept_answers.NOT_STORED_FIELDS,
    name=kept_answers.read_response_id,
    status=kept_answers.read_status,
    output=kept_answers.read_output,
    tap=StreamTap,
    frames=kept_answers.write_response_stream,
    last=kept_answers.write_terminal_event,
    numbered=number_frames,
    renumbered=renumber_frames,
    summons=summaries.write_summary_request,
    summarised=summaries.write_compact_response,
    summary=summaries.write_summary_response,
    compact_path=kept_lists.COMPACT_PATH,
    not_found=kept_lists.not_found_failure,
)

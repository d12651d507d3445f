"""What clients of this protocol leave with whoever serves them: answers, conversations, summaries."""

from __future__ import annotations

from toolwire.keeping import Keeping
from toolwire.protocols.openai_responses.details import kept_answers, kept_lists, kept_requests, summaries
from toolwire.protocols.openai_responses.details.tap import StreamTap, numbered, renumbered

KEEPING = Keeping(
    peek=kept_requests.peek,
    stateless=kept_requests.stateless,
    errand=kept_lists.errand,
    wants=kept_requests.wants,
    items=kept_requests.items,
    expanded=kept_requests.expanded,
    read_page=kept_lists.read_page,
    write_page=kept_lists.write_page,
    write_item=kept_requests.shown,
    write_deleted=kept_lists.write_deleted,
    read_conversation=kept_lists.read_conversation,
    read_metadata=kept_lists.read_metadata,
    read_added=kept_lists.read_added,
    write_conversation=kept_lists.write_conversation,
    named=kept_requests.named,
    renewed=kept_requests.renewed,
    referred=kept_requests.referred,
    resolved=kept_requests.resolved,
    new=kept_answers.new,
    begun=kept_answers.begun,
    ended=kept_answers.ended,
    told=kept_answers.told,
    unkept=kept_answers.UNKEPT,
    name=kept_answers.name,
    status=kept_answers.status,
    output=kept_answers.output,
    tap=StreamTap,
    frames=kept_answers.frames,
    last=kept_answers.last,
    numbered=numbered,
    renumbered=renumbered,
    summons=summaries.summons,
    summarised=summaries.summarised,
    summary=summaries.summary,
    compact_path=kept_lists.COMPACT_PATH,
    not_found=kept_lists.not_found,
)

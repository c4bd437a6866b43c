"""A partner's program on the client that openapi-python-client generates from the OpenAPI document.

    python first_deposit.py ADDRESS API_KEY

`assert_type` is checked by mypy: what it names must be members of their own type, and not in a map of unknown ones.
"""

import io
import sys
import time
from typing import assert_type
from uuid import UUID, uuid4

from postonce_client import AuthenticatedClient
from postonce_client.api.accounts import get_account, open_account
from postonce_client.api.batches import get_batch, submit_batch
from postonce_client.api.transactions import get_statement, get_transaction, submit_deposit, submit_withdrawal
from postonce_client.models import (
    Account,
    Batch,
    Holder,
    Metadata,
    OpenAccountRequest,
    Problem,
    Transaction,
    TransactionPage,
    TransactionRequest,
)
from postonce_client.types import File, Unset

WAIT = "wait=30"


def main(address: str, key: str) -> None:
    client = AuthenticatedClient(base_url=address, token=key, raise_on_unexpected_status=True)
    user, account = uuid4(), uuid4()

    # The account has a holder.
    holder = Holder(given_name="Ada", family_name="Byron")
    terms = OpenAccountRequest(currency="EUR", holder=holder)
    opened = open_account.sync(user, account, client=client, body=terms)
    assert isinstance(opened, Account), opened
    assert_type(opened.holder, Holder | Unset)
    assert opened.holder == holder, opened

    # The first deposit, and the same request again.
    metadata = Metadata.from_dict({"shop": "12"})
    request = TransactionRequest(amount="125.50", currency="EUR", reference="invoice 7", metadata=metadata)
    assert_type(request.reference, str | Unset | None)
    deposit_id = uuid4()
    deposit = client, user, account, deposit_id, request
    posted = submit(*deposit)
    assert_type(posted.reference, str | Unset)
    assert_type(posted.metadata, Metadata | Unset)
    assert posted.status == "posted" and posted.balance_after == "125.50", posted
    assert posted.reference == "invoice 7" and posted.metadata == metadata, posted
    assert not posted.additional_properties, posted
    assert submit(*deposit) == posted

    # The id cannot be used again for another amount.
    other = TransactionRequest(amount="125.51", currency="EUR")
    refused = submit_deposit.sync(
        user, account, client=client, body=other, idempotency_key=str(deposit_id), prefer=WAIT
    )
    assert isinstance(refused, Problem), refused
    assert refused.status == 422 and refused.code == "idempotency_key_reused", refused

    # A withdrawal of more than the balance is rejected, which is a result.
    too_much = TransactionRequest(amount="125.51", currency="EUR")
    withdrawal = submit_withdrawal.sync_detailed(
        user, account, client=client, body=too_much, idempotency_key=str(uuid4()), prefer=WAIT
    )
    rejected = withdrawal.parsed
    assert withdrawal.status_code == 200 and isinstance(rejected, Transaction), withdrawal
    assert rejected.status == "rejected" and rejected.reason == "insufficient_funds", rejected

    # The statement, one transaction, and the account.
    page = get_statement.sync(user, account, client=client)
    assert isinstance(page, TransactionPage) and page.transactions == [posted], page
    assert get_transaction.sync(user, account, deposit_id, client=client) == posted
    send_batch(client, user, account)
    current = get_account.sync(user, account, client=client)
    assert isinstance(current, Account) and current.balance == "126.50", current
    assert current.holder == holder, current


def submit(
    client: AuthenticatedClient, user: UUID, account: UUID, message: UUID, request: TransactionRequest
) -> Transaction:
    key = f'"{message}"'
    answer = submit_deposit.sync(user, account, client=client, body=request, idempotency_key=key, prefer=WAIT)
    assert isinstance(answer, Transaction), answer
    return answer


def send_batch(client: AuthenticatedClient, user: UUID, account: UUID) -> None:
    """Sends a batch with one deposit, in a document whose format the service recognizes."""
    document = f"user_id,account_id,message_id,type,amount,currency\n{user},{account},{uuid4()},deposit,1,EUR\n"
    batch_id = uuid4()
    body = File(payload=io.BytesIO(document.encode()))
    accepted = submit_batch.sync(client=client, body=body, idempotency_key=str(batch_id))
    assert isinstance(accepted, Batch), accepted
    deadline = time.monotonic() + 60
    while True:
        batch = get_batch.sync(batch_id, client=client, prefer=WAIT)
        assert isinstance(batch, Batch), batch
        if batch.phase == "completed":
            break
        assert time.monotonic() < deadline, batch
    assert batch.posted == 1, batch


if __name__ == "__main__":
    main(*sys.argv[1:])
    print("all steps succeeded")

#!/usr/bin/env bash
# Deposits money at a Postonce bank, exactly once, whatever the network does. Needs bash and curl 7.55, and nothing else.
#
#     POSTONCE_API_KEY=po_... ./deposit.sh USER ACCOUNT AMOUNT CURRENCY REFERENCE [MESSAGE_ID]
#
# The key needs the scopes deposit and read. Prints one line, and exits with
#     0  posted    the money is on the account
#     3  rejected  a final answer, for example because the account is closed; a new payment needs a new id
#     4  refused   the request is wrong, and this run posted nothing; correct it, and use the same id
#     5  unknown   there is no final answer yet, and the money may have moved; run again with the same MESSAGE_ID
#     2  wrong usage, before anything was sent. Any other code, such as that of a crash, means unknown.
set -euo pipefail

usage() { # MESSAGE
  echo "$1" >&2
  exit 2
}
# A variable without line ends after it. Its value is never shown, because it may be a secret.
setting() { # NAME VALUE PATTERN RULE
  local value=$2
  while [[ $value == *[$'\r\n'] ]]; do value=${value%?}; done
  [[ $value =~ ^($3)$ && $value != *[[:cntrl:]]* ]] || usage "$1 must be $4"
  printf %s "$value"
}

if (($# < 5 || $# > 6)); then usage "$(sed -n '2,11s/^# \{0,1\}//p' "$0")"; fi
key=$(LC_ALL=C setting POSTONCE_API_KEY "${POSTONCE_API_KEY:-}" '[!-~]+' 'set to visible ASCII characters, without spaces')
name='[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?'
port='[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]'
host="($name|\[[0-9A-Fa-f:.]+\])(:($port))?"
bank=$(setting POSTONCE_URL "${POSTONCE_URL:-http://127.0.0.1:8080}" "https?://$host(/[A-Za-z0-9._~%/-]*)?" \
  'an address such as https://bank.example')
# Longer than the wait in the header Prefer.
attempt_s=$(setting POSTONCE_ATTEMPT_S "${POSTONCE_ATTEMPT_S:-15}" '[1-9][0-9]{0,5}' 'a number of seconds')
give_up_s=$(setting POSTONCE_GIVE_UP_S "${POSTONCE_GIVE_UP_S:-300}" '[0-9]{1,6}' 'a number of seconds')
for uuid in "$1" "$2" ${6+"$6"}; do
  [[ $uuid =~ ^[0-9A-Fa-f-]{32,36}$ ]] || usage 'USER, ACCOUNT and MESSAGE_ID must be UUIDs'
done
delay_ms=200
delay_ms_max=10000

# Made once, and the same for every attempt. Store it with your payment BEFORE the first attempt: if this program dies,
# only the same id can tell whether the money moved. A new id would be a second payment.
id=${6:-$({ uuidgen 2>/dev/null || cat /proc/sys/kernel/random/uuid; } | tr A-Z a-z)}
echo "message id $id" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quoted() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')"; }
printf '{"amount":%s,"currency":%s,"reference":%s}' "$(quoted "$3")" "$(quoted "$4")" "$(quoted "$5")" >"$work/body"

# Prints a text of the answer. This is enough for the answers to this request; in general use jq.
member() { grep -oE "\"$1\": *\"([^\"\\]|\\\\.)*\"" "$work/answer" | head -n 1 | sed 's/^"[^"]*": *"//; s/"$//'; }
# Text of a server, without what a terminal would obey.
printable() { LC_ALL=C tr -c '\12\40-\176' '?'; }
finish() { # EXIT_CODE LINE
  printf '%s\n' "$2" | printable
  if [[ $1 == 5 ]]; then echo "The money may have moved. Run again later with the message id $id." >&2; fi
  exit "$1"
}

account=${bank%/}/v1/users/$1/accounts/$2
request=(--data-binary "@$work/body" -H 'Content-Type: application/json' -H "Idempotency-Key: $id" -H 'Prefer: wait=5'
  "$account/deposits")
may_be_posted=false
SECONDS=0 # bash counts them
while true; do
  limit_s=$((give_up_s - SECONDS < attempt_s ? give_up_s - SECONDS : attempt_s))
  : >"$work/head"
  : >"$work/answer"
  last='no answer'
  # The key is not an argument, because other users of the machine can read those.
  if status=$(printf 'Authorization: Bearer %s\n' "$key" |
    curl -sS --max-time "$((limit_s > 0 ? limit_s : 1))" -D "$work/head" -o "$work/answer" -w '%{http_code}' \
      -H @- -H 'Accept: application/json' "${request[@]}"); then
    state=$(member status || true)
    last="$status $(member code || echo "${state:--}")"
  else
    status=0
  fi
  case $status in
  200 | 202)
    case $state in
    posted) finish 0 "posted $id $(member order_number) $(member balance_after)" ;;
    rejected) finish 3 "rejected $id $(member reason)" ;;
    accepted) request=("$account/transactions/$id") ;; # It is queued. From now on it is enough to read it.
    esac
    ;;
  408 | 429) ;;
  3?? | 4??)
    if $may_be_posted; then finish 5 "unknown $id $last"; fi # This attempt did nothing, but an earlier one may have.
    printable <"$work/answer" >&2
    finish 4 "refused $id $last: $(member detail || echo -)"
    ;;
  esac
  if [[ $status != 429 ]]; then may_be_posted=true; fi # Such a request was not processed. Any other may have been.
  retry_after_s=$(tr -d '\r' <"$work/head" | sed -n 's/^[Rr]etry-[Aa]fter: *\([0-9]\{1,9\}\)$/\1/p' | tail -n 1)
  pause_ms=$((delay_ms / 2 + RANDOM % (delay_ms / 2)))
  if ((${retry_after_s:-0} * 1000 > pause_ms)); then pause_ms=$((retry_after_s * 1000)); fi
  delay_ms=$((delay_ms * 2 < delay_ms_max ? delay_ms * 2 : delay_ms_max))
  if ((SECONDS + (pause_ms + 999) / 1000 >= give_up_s)); then finish 5 "unknown $id $last"; fi
  pause_s=$(printf '%d.%03d' $((pause_ms / 1000)) $((pause_ms % 1000)))
  echo "$last; the next attempt is in $pause_s s" >&2
  sleep "$pause_s"
done

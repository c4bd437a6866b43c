import java.net.URI;
import java.net.http.*;
import java.util.UUID;
import java.util.concurrent.*;
import java.util.regex.Pattern;

/**
 * Deposits money at a Postonce bank, exactly once, whatever the network does. Needs Java 17 and nothing else.
 *
 * <pre>    POSTONCE_API_KEY=po_... java Deposit.java USER ACCOUNT AMOUNT CURRENCY REFERENCE [MESSAGE_ID]</pre>
 *
 * The key needs the scopes deposit and read. Prints one line, and exits with
 * <pre>
 *   0  posted    the money is on the account
 *   3  rejected  a final answer, for example because the account is closed; a new payment needs a new id
 *   4  refused   the request is wrong, and this run posted nothing; correct it, and use the same id
 *   5  unknown   there is no final answer yet, and the money may have moved; run again with the same MESSAGE_ID
 *   2  wrong usage, before anything was sent. Any other code, such as that of a crash, means unknown.
 * </pre>
 */
public final class Deposit {
    // Without _, which Java allows in no host.
    static final String HOST = "[A-Za-z0-9-]{1,63}(\\.[A-Za-z0-9-]{1,63})*\\.?|\\[[0-9A-Fa-f:.]+\\]";
    static final String PORT = "[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]";
    static final String HTTP_URL = "https?://(" + HOST + ")(:(" + PORT + "))?(/[A-Za-z0-9._~%/-]*)?";
    static final String KEY =
            setting("POSTONCE_API_KEY", "", "[!-~]+", "set to visible ASCII characters, without spaces");
    static final String BANK = setting("POSTONCE_URL", "http://127.0.0.1:8080", HTTP_URL,
            "an address such as https://bank.example").replaceAll("/+$", "");
    // Longer than the wait in the header Prefer.
    static final long ATTEMPT_MS =
            Long.parseLong(setting("POSTONCE_ATTEMPT_S", "15", "[1-9][0-9]{0,5}", "a number of seconds")) * 1000;
    static final long GIVE_UP_MS =
            Long.parseLong(setting("POSTONCE_GIVE_UP_S", "300", "[0-9]{1,6}", "a number of seconds")) * 1000;
    static final long DELAY_MIN_MS = 200, DELAY_MAX_MS = 10_000;
    static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    record Outcome(int exitCode, String line) {}

    public static void main(String[] args) throws InterruptedException {
        if (args.length < 5 || args.length > 6) {
            usage("usage: POSTONCE_API_KEY=po_... java Deposit.java USER ACCOUNT AMOUNT CURRENCY REFERENCE [MESSAGE_ID]");
        }
        for (int i = 0; i < args.length; i = i == 1 ? 5 : i + 1) {
            if (!args[i].matches("[0-9A-Fa-f-]{32,36}")) usage("USER, ACCOUNT and MESSAGE_ID must be UUIDs");
        }
        // Made once, and the same for every attempt. Store it with your payment BEFORE the first attempt: if this program
        // dies, only the same id can tell whether the money moved. A new id would be a second payment.
        String id = args.length == 6 ? args[5] : UUID.randomUUID().toString();
        System.err.println("message id " + id);
        String body = "{\"amount\":%s,\"currency\":%s,\"reference\":%s}"
                .formatted(quoted(args[2]), quoted(args[3]), quoted(args[4]));
        Outcome outcome = deposit(BANK + "/v1/users/" + args[0] + "/accounts/" + args[1], id, body);
        System.out.println(printable(outcome.line()));
        if (outcome.exitCode() == 5) {
            System.err.println("The money may have moved. Run again later with the message id " + id + ".");
        }
        System.exit(outcome.exitCode());
    }

    /** Sends the same request until the answer is final, or the time is over. */
    static Outcome deposit(String account, String id, String body) throws InterruptedException {
        HttpRequest request = request(account + "/deposits")
                .header("Content-Type", "application/json").header("Idempotency-Key", id).header("Prefer", "wait=5")
                .POST(HttpRequest.BodyPublishers.ofString(body)).build();
        long giveUpAt = nowMs() + GIVE_UP_MS, delayMs = DELAY_MIN_MS;
        boolean mayBePosted = false;
        while (true) {
            int status = 0;
            long retryAfterMs = 0;
            String answer = "", last = "no answer";
            try {
                HttpResponse<String> response = send(request, Math.max(1000, Math.min(ATTEMPT_MS, giveUpAt - nowMs())));
                status = response.statusCode();
                answer = response.body();
                String code = member(answer, "code");
                last = status + " " + (code.equals("-") ? member(answer, "status") : code);
                retryAfterMs = response.headers().firstValue("Retry-After").filter(text -> text.matches("\\d{1,9}"))
                        .map(Long::parseLong).orElse(0L) * 1000;
            } catch (ExecutionException | TimeoutException e) {
                System.err.println("no answer: " + (e.getCause() == null ? e : e.getCause()));
            }
            if (status == 200 || status == 202) {
                String state = member(answer, "status");
                if (state.equals("posted")) {
                    String posting = member(answer, "order_number") + " " + member(answer, "balance_after");
                    return new Outcome(0, "posted " + id + " " + posting);
                }
                if (state.equals("rejected")) return new Outcome(3, "rejected " + id + " " + member(answer, "reason"));
                // It is queued. From now on it is enough to read it.
                if (state.equals("accepted")) request = request(account + "/transactions/" + id).build();
            } else if (status >= 300 && status < 500 && status != 408 && status != 429) {
                // This attempt did nothing, but an earlier one may have.
                if (mayBePosted) return new Outcome(5, "unknown " + id + " " + last);
                System.err.println(printable(answer));
                return new Outcome(4, "refused " + id + " " + last + ": " + member(answer, "detail"));
            }
            if (status != 429) mayBePosted = true; // Such a request was not processed. Any other may have been.
            long pauseMs = Math.max(retryAfterMs, ThreadLocalRandom.current().nextLong(delayMs / 2, delayMs));
            delayMs = Math.min(delayMs * 2, DELAY_MAX_MS);
            if (nowMs() + pauseMs >= giveUpAt) return new Outcome(5, "unknown " + id + " " + last);
            System.err.printf("%s; the next attempt is in %.1f s%n", last, pauseMs / 1000.0);
            Thread.sleep(pauseMs);
        }
    }

    static HttpRequest.Builder request(String uri) {
        return HttpRequest.newBuilder(URI.create(uri))
                .header("Authorization", "Bearer " + KEY).header("Accept", "application/json");
    }

    /** The time limit covers the whole answer; that of {@link HttpRequest} would end with its headers. */
    static HttpResponse<String> send(HttpRequest request, long limitMs)
            throws ExecutionException, TimeoutException, InterruptedException {
        var answer = HTTP.sendAsync(request, HttpResponse.BodyHandlers.ofString());
        try {
            return answer.get(limitMs, TimeUnit.MILLISECONDS);
        } finally {
            answer.cancel(true);
        }
    }

    /** A text of a JSON answer, or "-". This is enough for the answers to this request; in general use a library. */
    static String member(String json, String name) {
        var found = Pattern.compile("\"" + name + "\":\\s*\"((?:[^\"\\\\]|\\\\.)*)\"").matcher(json);
        return found.find() ? found.group(1) : "-";
    }

    static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    /** Text of a server, without what a terminal would obey. */
    static String printable(String text) {
        return Pattern.compile("[\\p{C}\u2028\u2029]").matcher(text)
                .replaceAll(found -> "\\\\u%04x".formatted(found.group().codePointAt(0)));
    }

    /** A variable without line ends after it. Its value is never shown, because it may be a secret. */
    static String setting(String name, String fallback, String allowed, String rule) {
        String value = System.getenv().getOrDefault(name, fallback).replaceAll("[\r\n]+$", "");
        if (!value.matches(allowed)) usage(name + " must be " + rule);
        return value;
    }

    static void usage(String message) {
        System.err.println(message);
        System.exit(2);
    }

    static long nowMs() {
        return System.nanoTime() / 1_000_000;
    }
}

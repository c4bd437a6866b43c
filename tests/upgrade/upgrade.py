#!/usr/bin/env python3
"""Upgrades a running bank under load, from the programs of one version to those of another.

    python3 tests/upgrade/upgrade.py --old DIRECTORY --new DIRECTORY [--seconds 5] [--clients 8] [--back]

Each directory has the programs `postonce-web` and `postonce-worker`. The bank is two web and two worker processes on Azurite, which
`npm ci` in `tests/azurite` installs. Clients deposit through both web processes, as behind a load balancer: a connection that is
refused goes to the other process, and nothing else is repeated. Then the processes are replaced one at a time, workers first, each by
SIGTERM and a start of the new program on the same port; between two steps both versions serve the load. At the end every account must
have the sum of its accepted deposits, and `postonce-web verify` no finding.

Prints what was seen, and exits with 1 if a request failed or money is missing or too much.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

TESTS = pathlib.Path(__file__).resolve().parent.parent
KEY = "a-key-for-the-upgrade-0123456789abcdef"
ACCOUNTS = 40
WAIT_S = 60
ACCOUNT = "devstoreaccount1"
# The published key of every emulator.
EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def request(port, method, path, body=None, headers=()):
    """Returns the status and the document of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        sent = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **dict(headers)}
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def until(what, check):
    deadline = time.monotonic() + WAIT_S
    while not check():
        if time.monotonic() > deadline:
            sys.exit(f"not within {WAIT_S} s: {what}")
        time.sleep(0.05)


def is_ready(port):
    try:
        return request(port, "GET", "/readyz")[0] == 200
    except (OSError, http.client.HTTPException, ValueError):
        return False


class Process:
    """A web or worker process, which can be replaced by one of another version."""

    def __init__(self, kind, number, environment, folder):
        self.kind, self.name, self.folder = kind, f"{kind}-{number}", folder
        self.port = free_port()
        bind = "POSTONCE_BIND" if kind == "web" else "POSTONCE_WORKER_BIND"
        self.environment = {**environment, bind: f"127.0.0.1:{self.port}"}
        self.process = None

    def start(self, programs):
        arguments = ["--no-worker"] if self.kind == "web" else []
        program = pathlib.Path(programs).resolve() / f"postonce-{self.kind}"
        with open(self.folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                [program, *arguments], env=self.environment, cwd=self.folder, stdout=log, stderr=log
            )
        until(f"{self.name} is ready", lambda: is_ready(self.port))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(WAIT_S) != 0:
            sys.exit(f"{self.name} ended with {self.process.returncode}: see {self.folder}")


class Load:
    """Clients that deposit until they are stopped."""

    def __init__(self, webs, clients):
        self.webs, self.is_over, self.lock = webs, threading.Event(), threading.Lock()
        self.accounts = [(uuid.uuid4(), uuid.uuid4()) for _ in range(ACCOUNTS)]
        self.accepted, self.failures = collections.Counter(), []
        self.statuses, self.refused_connections = collections.Counter(), 0
        self.threads = [threading.Thread(target=self.deposit, args=(client,)) for client in range(clients)]

    def path(self, account):
        user, account = account
        return f"/v1/users/{user}/accounts/{account}"

    def open_accounts(self):
        holder = {"given_name": "Ada", "family_name": "Byron"}
        for account in self.accounts:
            status, answer = request(
                self.webs[0].port, "PUT", self.path(account), {"currency": "EUR", "holder": holder}
            )
            if status != 201:
                sys.exit(f"an account was not opened: {status} {answer}")

    def deposit(self, client):
        turn = client
        while not self.is_over.is_set():
            turn += 1
            account = self.accounts[turn % ACCOUNTS]
            headers = {"Idempotency-Key": str(uuid.uuid4())}
            if client % 2:
                headers["Prefer"] = "wait=5"
            body = {"amount": "1.01", "currency": "EUR", "reference": "upgrade"}
            try:
                status, answer = self.send(turn, f"{self.path(account)}/deposits", body, headers)
            except (OSError, http.client.HTTPException, ValueError) as fault:
                status, answer = 0, repr(fault)
            with self.lock:
                self.statuses[status] += 1
                if status in (200, 201, 202):
                    self.accepted[account] += 1
                else:
                    self.failures.append(f"{status} {answer}")

    def send(self, turn, path, body, headers):
        """Sends a deposit to one web process, and to the other one if the first one accepts no connections."""
        for web in (self.webs[turn % 2], self.webs[(turn + 1) % 2]):
            try:
                return request(web.port, "POST", path, body, headers)
            except ConnectionRefusedError:
                with self.lock:
                    self.refused_connections += 1
        raise ConnectionRefusedError("by both web processes")

    def stop(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def start_azurite(folder):
    ports = {service: free_port() for service in ("blob", "queue", "table")}
    arguments = [f"--{service}Port={port}" for service, port in ports.items()]
    azurite = subprocess.Popen(
        ["node", TESTS / "azurite" / "start.js", "--silent", "--disableTelemetry", "--skipApiVersionCheck",
         "--inMemoryPersistence", *arguments],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    for port in ports.values():
        until("Azurite listens", lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
    endpoints = "".join(
        f"{service.capitalize()}Endpoint=http://127.0.0.1:{port}/{ACCOUNT};" for service, port in ports.items()
    )
    settings = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={EMULATOR_KEY};{endpoints}"
    return azurite, f"azure:{settings}"


def balances(load):
    port = load.webs[0].port
    return {account: request(port, "GET", load.path(account))[1]["balance"] for account in load.accounts}


def steps(options, processes):
    """The replacements in their order: each process and the folder of its next programs."""
    if not options.back:
        return [(process, options.new) for process in processes]
    upgraded = processes[:-1]
    return [(process, options.new) for process in upgraded] + [(process, options.old) for process in reversed(upgraded)]


def verify(programs, environment, folder):
    program = pathlib.Path(programs).resolve() / "postonce-web"
    return subprocess.run([program, "verify"], env=environment, cwd=folder, capture_output=True, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", required=True)
    parser.add_argument("--seconds", type=float, default=5, help="load between two steps")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--back", action="store_true", help="goes back to the old programs before the last process")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="postonce-upgrade-"))
    azurite, storage = start_azurite(folder)
    environment = {"PATH": os.environ["PATH"], "POSTONCE_STORAGE": storage, "POSTONCE_BOOTSTRAP_KEY": KEY}
    webs = [Process("web", number, environment, folder) for number in (1, 2)]
    workers = [Process("worker", number, environment, folder) for number in (1, 2)]
    load = Load(webs, options.clients)
    try:
        for process in [*webs, *workers]:
            process.start(options.old)
        load.open_accounts()
        for thread in load.threads:
            thread.start()
        time.sleep(options.seconds)
        for process, programs in steps(options, [*workers, *webs]):
            process.stop()
            process.start(programs)
            time.sleep(options.seconds)
            with load.lock:
                print(f"{process.name} runs {programs}; accepted so far: {sum(load.accepted.values())}", flush=True)
        load.stop()
        expected = {account: f"{load.accepted[account] * 101 / 100:.2f}" for account in load.accounts}
        until("all deposits are posted", lambda: balances(load) == expected or load.failures)
        wrong = [account for account, balance in balances(load).items() if balance != expected[account]]
        for process in [*webs, *workers]:
            process.stop()
        versions = [options.old, options.new] if options.back else [options.new]
        verified = [verify(programs, environment, folder) for programs in versions]
    finally:
        load.is_over.set()
        for process in [*webs, *workers]:
            if process.process and process.process.poll() is None:
                process.process.kill()
        azurite.kill()
    print(f"answers by status: {dict(load.statuses)}; connections refused by a stopped process: {load.refused_connections}")
    print(f"failed requests: {len(load.failures)}; accounts with another balance: {len(wrong)} of {ACCOUNTS}")
    for failure in load.failures[:10]:
        print(f"  {failure}")
    for audit in verified:
        print(audit.stdout[-2000:], audit.stderr[-2000:])
    print(f"logs: {folder}")
    sys.exit(1 if load.failures or wrong or any(audit.returncode for audit in verified) else 0)


main()

// Starts Azurite with its arguments, and keeps its garbage collector from running during a test.
//
// With `--inMemoryPersistence`, every queue message leaves a piece of memory of its own behind. Once
// a minute the collector of the queue service removes them one by one, searching a list each time,
// and nothing else is answered meanwhile: many seconds after ten thousand messages. Tests end before
// the memory matters.
"use strict";

const constants = require("azurite/dist/src/queue/utils/constants");

const DAY_MS = 24 * 60 * 60 * 1000;
if (constants.DEFAULT_GC_INTERVAL_MS !== 60 * 1000) {
  throw new Error("this version of Azurite collects garbage otherwise than start.js knows");
}
constants.DEFAULT_GC_INTERVAL_MS = DAY_MS;

require("azurite/dist/src/azurite");

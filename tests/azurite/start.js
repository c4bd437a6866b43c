// Starts Azurite with its arguments, and prevents its garbage collection during a test.
//
// With `--inMemoryPersistence`, every queue message leaves a separate block of memory. Once a minute the
// garbage collection of the queue service removes these blocks one by one, with a search of a list for
// each, and Azurite answers no request meanwhile: many seconds after ten thousand messages. A test ends
// before the memory is exhausted.
"use strict";

const constants = require("azurite/dist/src/queue/utils/constants");

const DAY_MS = 24 * 60 * 60 * 1000;
if (constants.DEFAULT_GC_INTERVAL_MS !== 60 * 1000) {
  throw new Error("start.js does not support the garbage collection of this version of Azurite");
}
constants.DEFAULT_GC_INTERVAL_MS = DAY_MS;

require("azurite/dist/src/azurite");

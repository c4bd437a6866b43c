// Starts Azurite with its arguments, and corrects two of its properties that tests meet.
"use strict";

// With `--inMemoryPersistence`, every queue message leaves a separate block of memory. Once a minute the
// garbage collection of the queue service removes these blocks one by one, with a search of a list for
// each, and Azurite answers no request meanwhile: many seconds after ten thousand messages. A test ends
// before the memory is exhausted.
const constants = require("azurite/dist/src/queue/utils/constants");

const DAY_MS = 24 * 60 * 60 * 1000;
if (constants.DEFAULT_GC_INTERVAL_MS !== 60 * 1000) {
  throw new Error("start.js does not support the garbage collection of this version of Azurite");
}
constants.DEFAULT_GC_INTERVAL_MS = DAY_MS;

// The table service decodes each piece of a request that it receives on its own, so a character that is
// divided between two pieces is damaged. Azure decodes the whole request.
const serializer = require("azurite/dist/src/table/generated/utils/serializer");

const { deserialize } = serializer;
if (typeof deserialize !== "function") {
  throw new Error("start.js does not support the table service of this version of Azurite");
}
serializer.deserialize = (context, request, specification, logger) => {
  const body = specification.requestBody;
  if (body && body.mapper.type.name !== "Stream") {
    request.getBodyStream().setEncoding("utf8");
  }
  return deserialize(context, request, specification, logger);
};

require("azurite/dist/src/azurite");

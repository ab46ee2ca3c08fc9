#pragma once

#include "framework/options/schema.h"

namespace tessera {

/// parallel_config: how a run is cut over processes. One process is all there is so far, so every key is planned.
struct ParallelOptions {};
void describe(Schema<ParallelOptions>& s);

}  // namespace tessera

#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// `tessera export`: the metrics of a run, also of an old one, for TensorBoard, Weights & Biases, Prometheus and
/// spreadsheets.
void add_export_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli

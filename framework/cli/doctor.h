#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Prints what this machine offers for training, measured in about 4 s: processor, instruction sets and which one is
/// used, cores, memory, huge pages, rates of multiply-adds, of matrix products by type and of memory accesses, the BLAS
/// and MPI libraries; and which of these slow training down. Exit code 0.
void add_doctor_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli

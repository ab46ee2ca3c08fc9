#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/recipe/build.h"
#include "framework/training/loop/trainer.h"
#include "tests/recipe/groups.h"

namespace tessera::recipe {

inline Recipe read(const Lines& sets) { return read_recipe("run.yaml", sets, Registries{}); }

/// What the console shows while run.yaml with `sets` trains; if that is refused, then "refused: " and why.
inline std::string train(const Lines& sets) {
  testing::internal::CaptureStdout();
  std::string error;
  try {
    training::train(build(read(sets)), training::StopSignal{});
  } catch (const ConfigError& wrong) {
    error = text("refused: ", wrong.what());
  }
  return testing::internal::GetCapturedStdout() + error;
}

inline checkpoint::Checkpoint saved(const std::string& run, int iteration) {
  return checkpoint::Checkpoint::open(std::filesystem::path(run) / "checkpoints" /
                                      checkpoint::checkpoint_name("network", iteration));
}

/// Every element of every tensor.
inline std::map<std::string, std::vector<float>> content(const checkpoint::Checkpoint& one) {
  std::map<std::string, std::vector<float>> all;
  for (const auto& name : one.names()) {
    auto& values = all[name];
    values.resize(static_cast<std::size_t>(one.shape(name).elements()));
    one.read(checkpoint::whole(name, Tensor(std::span(values), one.shape(name))), {true, true});
  }
  return all;
}

}  // namespace tessera::recipe

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "framework/checkpoint/checkpoint.h"

namespace tessera::checkpoint {

class OpenedCheckpoint;

/// Name of the file in a checkpoint that was saved without its frozen parameters.
inline constexpr const char* frozen_base_blob = "frozen_base.txt";

/// Where the frozen parameters of a checkpoint are that was saved without them.
struct FrozenBase {
  std::string name;          ///< path of the checkpoint or model folder that has them
  std::uint64_t digest = 0;  ///< of their elements, see training::FrozenWeights::digest
};

/// The content of frozen_base_blob.
std::string write_base(const FrozenBase& base);
/// The base that `line`, such a content, names. Throws DamageError if it names none.
FrozenBase read_base(const std::string& line);
/// The base that a checkpoint with these files needs; nothing: the checkpoint has all its weights. Throws DamageError
/// if the file says something else.
std::optional<FrozenBase> base_in(const Blobs& blobs);

/// Opens the checkpoint of a name.
using OpenNamed = std::function<std::unique_ptr<OpenedCheckpoint>(const std::string& name)>;
/// `opened`; if it was saved without its frozen parameters, the checkpoint that it names, and so on until one has them.
/// Null: `open` has returned null. Throws ConfigError if they name each other.
std::unique_ptr<OpenedCheckpoint> with_frozen(std::unique_ptr<OpenedCheckpoint> opened, const OpenNamed& open);

}  // namespace tessera::checkpoint

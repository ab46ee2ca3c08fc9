#pragma once

#include <optional>
#include <string>

#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/weight_source.h"

namespace tessera::recipe {

/// Name of the file in a folder of merged weights that says which adapters were merged: one line for each, with its
/// checksum and its folder. It is carried along where the folder is converted or is a base.
inline constexpr const char* merged_record = "merged_adapters.txt";

/// A checksum of the names, shapes and elements of an adapter. Reads it.
std::string checksum_of(const checkpoint::WeightSource& adapter);

/// The record of a model with the files `blobs` after `adapter` was merged into it.
std::string record_with(const checkpoint::Blobs& blobs, const checkpoint::WeightSource& adapter);

/// The line of the record among `blobs` that is about `adapter`; nothing: it has not been merged into that model, as
/// far as is known.
std::optional<std::string> merged_before(const checkpoint::Blobs& blobs, const checkpoint::WeightSource& adapter);

}  // namespace tessera::recipe

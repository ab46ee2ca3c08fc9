#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "framework/nn/parameter.h"

namespace tessera::model {

/// 128 bits that stand for content. Equal content has equal keys; other content has another key, except by a chance of
/// 2^-64 or less for as many as 2^32 contents. No protection against content that was made to have a key.
struct ContentKey {
  std::array<std::uint64_t, 2> words = {};
  std::string name() const;  ///< 32 hexadecimal digits
  bool operator==(const ContentKey&) const = default;
};

/// Computes the key of a sequence of pieces; the same bytes in other pieces have another key.
class ContentHash {
 public:
  void add(std::span<const std::byte> piece);
  void add(std::string_view piece) { add(std::as_bytes(std::span(piece))); }
  /// Name, type, shape and values of this rank's part of a parameter, of one stored in a file too.
  void add(const nn::Parameter& parameter);
  ContentKey key() const;

 private:
  void mix(std::uint64_t word);
  std::array<std::uint64_t, 2> lanes_ = {0x9E3779B97F4A7C15ULL, 0xD1B54A32D192ED03ULL};
};

/// A folder of arrays of bytes that are expensive to compute, each in a file named after its key; any number of
/// processes may read and write it at once. A file is a head of 48 bytes (magic, key, size, CRC-32C of the content) and
/// the content. What cannot be read or written costs a line to `warn` and never the run: a file that is damaged or not
/// of this form is told and replaced; after the first failed write, as on a full disk, nothing more is written.
class FeatureCache {
 public:
  /// `warn`: takes one line for the user; may be empty. Creates nothing yet.
  FeatureCache(std::filesystem::path folder, std::function<void(const std::string&)> warn)
      : folder_(std::move(folder)), warn_(std::move(warn)) {}

  /// Fills `content` with what was written for `key`. False: there is none of this size; `content` is then arbitrary.
  bool read(const ContentKey& key, std::span<std::byte> content);
  void write(const ContentKey& key, std::span<const std::byte> content);

 private:
  std::filesystem::path file_of(const ContentKey& key) const;
  void tell(const std::string& line) const {
    if (warn_) warn_(line);
  }

  std::filesystem::path folder_;
  std::function<void(const std::string&)> warn_;
  bool writes_ = true;
};

}  // namespace tessera::model

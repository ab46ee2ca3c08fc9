#include "framework/interop/shell/variable.h"

#include <algorithm>
#include <cstdint>

namespace tessera::shell {
namespace {

/// The hash of Bash 5 (FNV, 32 bits), of which a list with keys has 1024 buckets.
std::uint32_t bucket_of(const std::string& key) {
  std::uint32_t hash = 2166136261U;
  for (const char c : key) {
    hash *= 16777619U;
    hash ^= static_cast<std::uint32_t>(static_cast<unsigned char>(c));
  }
  return hash % 1024U;
}

}  // namespace

const std::string* Variable::at(const std::string& key) const {
  const auto found =
      std::find_if(key_items.begin(), key_items.end(), [&](const auto& one) { return one.first == key; });
  return found == key_items.end() ? nullptr : &found->second;
}

const std::string* Variable::at(long long given) const {
  const auto found = items.find(index(given));
  return found == items.end() ? nullptr : &found->second;
}

long long Variable::index(long long given) const {
  if (given >= 0) return given;
  return items.empty() ? -1 : items.rbegin()->first + 1 + given;
}

std::string& Variable::put(const std::string& key) {
  const auto found =
      std::find_if(key_items.begin(), key_items.end(), [&](const auto& one) { return one.first == key; });
  if (found != key_items.end()) return found->second;
  return key_items.emplace_back(key, "").second;
}

void Variable::drop(const std::string& key) {
  std::erase_if(key_items, [&key](const auto& one) { return one.first == key; });
}

std::vector<std::size_t> Variable::order() const {
  std::vector<std::size_t> out(key_items.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = out.size() - 1 - i;  // the newest of a bucket comes first
  std::stable_sort(out.begin(), out.end(), [this](std::size_t a, std::size_t b) {
    return bucket_of(key_items[a].first) < bucket_of(key_items[b].first);
  });
  return out;
}

std::vector<std::string> Variable::values() const {
  std::vector<std::string> out;
  for (const auto& [index, value] : items) out.push_back(value);
  for (const auto i : order()) out.push_back(key_items[i].second);
  return out;
}

std::vector<std::string> Variable::keys() const {
  std::vector<std::string> out;
  for (const auto& [index, value] : items) out.push_back(std::to_string(index));
  for (const auto i : order()) out.push_back(key_items[i].first);
  return out;
}

}  // namespace tessera::shell

#include "framework/tokenizers/bpe.h"

#include <algorithm>

#include "framework/base/json.h"
#include "framework/base/visible_text.h"
#include "framework/files/input_file.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {
namespace {

constexpr std::size_t short_piece = 48;  // up to here scanning all pairs beats a heap

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) | static_cast<std::uint32_t>(right);
}

std::size_t slot_of(std::uint64_t pair) { return (pair * 0x9E3779B97F4A7C15U) >> 32U; }

}  // namespace

ByteSpelling::ByteSpelling() : spelt_{}, byte_{} {
  byte_.fill(-1);
  char32_t spare = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const auto spelt = itself ? static_cast<char32_t>(b) : spare++;
    spelt_[static_cast<std::size_t>(b)] = spelt;
    byte_[spelt] = b;
  }
}

std::string ByteSpelling::bytes(std::string_view spelt) const {
  std::string out;
  for (std::size_t at = 0; at < spelt.size();) {
    const auto step = unicode::utf8_step(spelt, at);
    if (step.valid && step.code < byte_.size() && byte_[step.code] >= 0)
      out += static_cast<char>(byte_[step.code]);
    else
      out.append(spelt, at, step.length);
    at += step.length;
  }
  return out;
}

std::string ByteSpelling::spell(std::string_view bytes) const {
  std::string out;
  for (const auto byte : bytes) out += unicode::to_utf8(spelt_[static_cast<unsigned char>(byte)]);
  return out;
}

BpeModel::BpeModel(const std::string& vocab_file, const std::string& merge_file) {
  read_vocabulary(vocab_file);
  read_merges(merge_file, vocab_file);
}

void BpeModel::add_token(const std::string& file, std::string&& spelt, std::uint64_t id) {
  constexpr std::uint64_t most = 1U << 24U;
  if (id >= most)
    throw ConfigError(text(file, ": the token '", spelt, "' has the id ", id, "; expected one below ", most));
  if (id >= bytes_.size()) bytes_.resize(id + 1, std::string(unicode::replacement_character));
  bytes_[id] = spelling_.bytes(spelt);
  const auto [entry, fresh] = entries_.try_emplace(std::move(spelt));
  entry->second.id = static_cast<std::int32_t>(id);
  vocab_size_ += fresh ? 1 : 0;
}

void BpeModel::read_vocabulary(const std::string& file) {
  const auto content = files::read_input(file, "vocabulary");
  entries_.reserve(content.size() / 16);
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(text(file, ": is not a vocabulary: ", what, "; expected a JSON object like {\"!\": 0, ...}"));
  };
  std::string why;
  const auto json = parse_json(content, &why);
  if (json.is_discarded()) refuse(why);
  if (!json.is_object()) refuse(text("it is a JSON ", json.type_name()));
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_unsigned()) refuse(text("the id of '", token, "' is ", shortened(id.dump())));
    add_token(file, std::string(token), id.get<std::uint64_t>());
  }
  if (vocab_size_ == 0) refuse("it is empty");
}

std::int32_t BpeModel::symbol(const std::string& spelt) {
  auto& entry = entries_[spelt];
  if (entry.symbol < 0) {
    entry.symbol = static_cast<std::int32_t>(symbol_ids_.size());
    symbol_ids_.push_back(std::max(entry.id, 0));
  }
  return entry.symbol;
}

void BpeModel::read_merges(const std::string& file, const std::string& vocab_file) {
  for (std::size_t b = 0; b < 256; ++b)
    byte_symbols_[b] = symbol(unicode::to_utf8(spelling_.of(static_cast<unsigned char>(b))));
  const auto content = files::read_input(file, "merge list");
  std::vector<std::pair<std::uint64_t, Merge>> merges;
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < content.size();) {
    const auto end = std::min(content.find('\n', at), content.size());
    auto line = std::string_view(content).substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.substr(0, 8) == "#version")) continue;
    const auto blank = line.find(' ');
    if (blank == 0 || blank + 1 >= line.size() || line.find(' ', blank + 1) != std::string_view::npos)
      throw ConfigError(
          text(file, ":", line_number, ": '", line, "' is not a merge; expected two tokens with a blank between"));
    const std::string left(line.substr(0, blank)), right(line.substr(blank + 1));
    if (!find(left + right))
      throw ConfigError(text(file, ":", line_number, ": the merge '", line, "' makes '", left + right,
                             "', which is not a token of ", vocab_file,
                             "; give the vocabulary and the merges of one tokenizer"));
    const auto pair = pair_key(symbol(left), symbol(right));
    merges.push_back({pair, {static_cast<std::uint32_t>(merges.size()), symbol(left + right)}});
  }
  fill_slots(merges);
}

void BpeModel::fill_slots(const std::vector<std::pair<std::uint64_t, Merge>>& merges) {
  std::size_t size = 64;
  while (size < 2 * merges.size()) size *= 2;
  slots_.assign(size, {});
  byte_pairs_.assign(256 * 256, Merge{no_rank, 0});
  for (const auto& [pair, merge] : merges) {
    auto at = slot_of(pair) & (size - 1);
    while (slots_[at].pair != ~std::uint64_t{0} && slots_[at].pair != pair) at = (at + 1) & (size - 1);
    slots_[at] = {pair, merge};  // of two equal lines the later counts, as in a Python dict
    const auto left = pair >> 32U, right = pair & 0xFFFFFFFFU;
    if (left < 256 && right < 256) byte_pairs_[left * 256 + right] = merge;
  }
}

std::optional<std::int32_t> BpeModel::find(const std::string& spelt) const {
  const auto entry = entries_.find(spelt);
  return entry == entries_.end() || entry->second.id < 0 ? std::nullopt : std::optional(entry->second.id);
}

std::string BpeModel::bytes(std::int32_t id) const {
  const bool known = id >= 0 && static_cast<std::size_t>(id) < bytes_.size();
  return known ? bytes_[static_cast<std::size_t>(id)] : std::string(unicode::replacement_character);
}

BpeModel::Merge BpeModel::merge_of(std::int32_t left, std::int32_t right) const {
  if (left < 256 && right < 256)  // the symbols of bytes are the first
    return byte_pairs_[static_cast<std::size_t>(left) * 256 + static_cast<std::size_t>(right)];
  const auto pair = pair_key(left, right);
  const auto mask = slots_.size() - 1;
  auto at = slot_of(pair) & mask;
  while (slots_[at].pair != pair) {
    if (slots_[at].pair == ~std::uint64_t{0}) return {no_rank, 0};
    at = (at + 1) & mask;
  }
  return slots_[at].merge;
}

void BpeModel::encode(std::string_view piece, std::vector<std::int32_t>& ids, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (const auto byte : piece) symbols.push_back(byte_symbols_[static_cast<unsigned char>(byte)]);
  if (symbols.size() <= short_piece)
    merge_short(symbols);
  else
    merge_long(scratch);
  for (const auto made : symbols)
    if (made >= 0) ids.push_back(symbol_ids_[static_cast<std::size_t>(made)]);
}

void BpeModel::merge_short(std::vector<std::int32_t>& symbols) const {
  std::array<Merge, short_piece> merges;
  auto count = symbols.size();
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = merge_of(symbols[i], symbols[i + 1]);
  while (count > 1) {
    auto best = no_rank;
    for (std::size_t i = 0; i + 1 < count; ++i) best = std::min(best, merges[i].rank);
    if (best == no_rank) break;
    std::size_t to = 0;
    bool after_join = false;
    for (std::size_t from = 0; from < count; ++to) {
      const bool joined = from + 1 < count && merges[from].rank == best;
      symbols[to] = joined ? merges[from].symbol : symbols[from];
      if (!joined && from + 1 < count) merges[to] = merges[from];
      if (to > 0 && (joined || after_join)) merges[to - 1] = merge_of(symbols[to - 1], symbols[to]);  // a new pair
      after_join = joined;
      from += joined ? 2 : 1;
    }
    count = to;
  }
  symbols.resize(count);
}

// The same with lists and a heap: n log n for pieces of any length, such as a long line of equal characters.
// symbols[i] < 0 marks what a join to its left has swallowed.
void BpeModel::merge_long(Scratch& scratch) const {
  auto& [symbols, next, previous, heap, fresh] = scratch;
  const auto count = static_cast<std::int32_t>(symbols.size());
  next.resize(symbols.size());
  previous.resize(symbols.size());
  heap.clear();
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  for (std::int32_t i = 0; i < count; ++i) {
    const auto here = static_cast<std::size_t>(i);
    next[here] = i + 1 < count ? i + 1 : -1;
    previous[here] = i - 1;
    if (i + 1 == count) continue;
    if (const auto merge = merge_of(symbols[here], symbols[here + 1]); merge.rank != no_rank)
      heap.push_back({merge.rank, static_cast<std::uint32_t>(i)});
  }
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    const auto rank = heap.front().rank;
    fresh.clear();
    while (!heap.empty() && heap.front().rank == rank) {  // one rank from left to right, then what that made
      const auto at = heap.front().at;
      std::pop_heap(heap.begin(), heap.end(), later);
      heap.pop_back();
      if (symbols[at] < 0 || next[at] < 0) continue;
      const auto merge = merge_of(symbols[at], symbols[static_cast<std::size_t>(next[at])]);
      if (merge.rank == rank) join(scratch, at, merge);
    }
    for (const auto& candidate : fresh) {
      heap.push_back(candidate);
      std::push_heap(heap.begin(), heap.end(), later);
    }
  }
}

void BpeModel::join(Scratch& scratch, std::uint32_t at, const Merge& merge) const {
  auto& symbols = scratch.symbols;
  auto& next = scratch.next;
  const auto gone = static_cast<std::size_t>(next[at]);
  symbols[at] = merge.symbol;
  symbols[gone] = -1;
  next[at] = next[gone];
  const auto offer = [&](std::int32_t left) {
    const auto l = static_cast<std::size_t>(left);
    const auto made = merge_of(symbols[l], symbols[static_cast<std::size_t>(next[l])]);
    if (made.rank != no_rank) scratch.fresh.push_back({made.rank, static_cast<std::uint32_t>(left)});
  };
  if (next[at] >= 0) {
    scratch.previous[static_cast<std::size_t>(next[at])] = static_cast<std::int32_t>(at);
    offer(static_cast<std::int32_t>(at));
  }
  if (scratch.previous[at] >= 0) offer(scratch.previous[at]);
}

}  // namespace tessera::tokenizers

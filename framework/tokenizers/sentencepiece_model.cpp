#include "framework/tokenizers/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <new>

#include "framework/files/input_file.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {
namespace {

/// One field of a serialized protocol buffer. Source: protobuf.dev, "Encoding".
struct Field {
  std::uint64_t number = 0;
  std::string_view content;  // of a length-delimited field; empty otherwise
};

std::optional<std::uint64_t> take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<Field> take_field(std::string_view& rest) {
  const auto key = take_varint(rest);
  if (!key) return std::nullopt;
  Field field{*key >> 3U, {}};
  std::optional<std::uint64_t> length = 0;
  switch (*key & 7U) {
    case 0:
      return take_varint(rest) ? std::optional(field) : std::nullopt;
    case 1:
      length = 8;
      break;
    case 2:
      length = take_varint(rest);
      break;
    case 5:
      length = 4;
      break;
    default:
      return std::nullopt;
  }
  if (!length || *length > rest.size()) return std::nullopt;
  if ((*key & 7U) == 2) field.content = rest.substr(0, *length);
  rest.remove_prefix(*length);
  return field;
}

/// The length-delimited field `number` of a message; empty if it has none.
std::string_view field_of(std::string_view message, std::uint64_t number) {
  std::string_view found;
  while (!message.empty()) {
    const auto field = take_field(message);
    if (!field) break;
    if (field->number == number && !field->content.empty()) found = field->content;
  }
  return found;
}

// sentencepiece_model.proto
constexpr std::uint64_t normalizer_spec = 3, denormalizer_spec = 5, precompiled_charsmap = 2;

/// The library replaces each character of a text by a text of the map, of any length. In published models the longest
/// has 33 bytes.
constexpr std::size_t longest_replacement = 256;

void check_replacements(std::string_view model, std::uint64_t spec, const std::string& file) {
  const auto map = field_of(field_of(model, spec), precompiled_charsmap);
  std::uint64_t trie = 0;
  for (unsigned i = 0; i < 4 && i < map.size(); ++i)
    trie |= std::uint64_t{static_cast<unsigned char>(map[i])} << (8 * i);
  for (auto at = std::min<std::uint64_t>(trie + 4, map.size()); at < map.size();) {
    const auto end = std::min(map.find('\0', at), map.size());
    if (end - at > longest_replacement)
      throw ConfigError(text(file, ": its normalization replaces a character by ", end - at, " bytes; the limit is ",
                             longest_replacement, ". The file is damaged: copy it again"));
    at = end + 1;
  }
}

constexpr std::string_view space_symbol = "\xE2\x96\x81";  // U+2581

std::string with_spaces(std::string_view spelling) {
  std::string out;
  for (std::size_t at = 0; at < spelling.size();) {
    const auto next = std::min(spelling.find(space_symbol, at), spelling.size());
    out += spelling.substr(at, next - at);
    if (next == spelling.size()) break;
    out += ' ';
    at = next + space_symbol.size();
  }
  return out;
}

}  // namespace

struct SentencePieceModel::Library {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceModel::SentencePieceModel(const std::string& file) : file_(file) {
  const auto content = files::read_input(file, "SentencePiece model");
  for (const auto spec : {normalizer_spec, denormalizer_spec}) check_replacements(content, spec, file);
  auto library = std::make_unique<Library>();
  const auto status = library->processor.LoadFromSerializedProto(content);
  if (!status.ok() || library->processor.GetPieceSize() == 0)
    throw ConfigError(text(file, ": is not a SentencePiece model, or is damaged",
                           status.ok() ? "" : text(" (", status.error_message(), ")"),
                           "; give the .model file that spm_train wrote, or copy it again"));
  library_ = std::move(library);
  rewrites_text_ = !field_of(field_of(content, denormalizer_spec), precompiled_charsmap).empty();
  for (std::int32_t id = 0; id < pieces() && anchor_text_.empty(); ++id) {
    if (byte(id)) continue;
    anchor_ = {id};
    anchor_text_ = decode(anchor_);
  }
}

SentencePieceModel::~SentencePieceModel() = default;

std::int32_t SentencePieceModel::pieces() const { return library_->processor.GetPieceSize(); }
std::int32_t SentencePieceModel::pad() const { return library_->processor.pad_id(); }
std::int32_t SentencePieceModel::bos() const { return library_->processor.bos_id(); }
std::int32_t SentencePieceModel::eos() const { return library_->processor.eos_id(); }
std::int32_t SentencePieceModel::unknown() const { return library_->processor.unk_id(); }

std::string SentencePieceModel::spelling(std::int32_t id) const { return library_->processor.IdToPiece(id); }

std::optional<std::int32_t> SentencePieceModel::find(const std::string& spelling) const {
  const auto id = library_->processor.PieceToId(spelling);  // the id of the unknown piece if there is no such piece
  return id >= 0 && id < pieces() && this->spelling(id) == spelling ? std::optional(id) : std::nullopt;
}

bool SentencePieceModel::is_control(std::int32_t id) const { return library_->processor.IsControl(id); }

std::optional<unsigned char> SentencePieceModel::byte(std::int32_t id) const {
  if (!library_->processor.IsByte(id)) return std::nullopt;
  return static_cast<unsigned char>(std::stoi(spelling(id).substr(3, 2), nullptr, 16));  // <0x..>, checked by Load
}

std::string SentencePieceModel::bytes(std::int32_t id) const {
  if (const auto one = byte(id)) return std::string(1, static_cast<char>(*one));
  if (is_control(id)) return "";
  if (library_->processor.IsUnknown(id)) return decode({&id, 1});
  return with_spaces(spelling(id));
}

void SentencePieceModel::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  try {
    std::vector<int> out;
    const auto status = library_->processor.Encode(text, &out);
    if (!status.ok()) throw ConfigError(tessera::text(file_, ": a text cannot be encoded: ", status.error_message()));
    ids.insert(ids.end(), out.begin(), out.end());
  } catch (const std::bad_alloc&) {
    throw ConfigError(tessera::text(file_, ": there is not enough memory for a text of ", text.size(),
                                    " bytes; divide it, or use a machine with more memory"));
  }
}

std::string SentencePieceModel::decode(std::span<const std::int32_t> ids) const {
  std::string out;
  const auto status = library_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &out);
  if (!status.ok()) throw ConfigError(text(file_, ": ids cannot be decoded: ", status.error_message()));
  return out;
}

/// Bytes of byte fallback wait for the rest of their character. Everything else is decoded at once: after what came
/// before while that is empty, because the first space of a text may be dropped; then after the anchor.
class SentencePieceModel::Decoder final : public Tokenizer::Decoder {
 public:
  explicit Decoder(const SentencePieceModel& model) : model_(model) {}

  std::string push(std::int32_t id) override {
    if (id < 0 || id >= model_.pieces()) {
      auto shown = finish();
      begun_ = true;
      return shown + std::string(unicode::replacement_character);
    }
    if (model_.rewrites_text_ || model_.byte(id)) {
      held_.push_back(id);
      return model_.rewrites_text_ ? "" : whole_characters();
    }
    auto shown = say_held();
    held_ = {id};
    return shown + say_held();
  }

  std::string finish() override { return say_held(); }

 private:
  /// The bytes held, up to an unfinished character.
  std::string whole_characters() {
    std::string bytes;
    for (const auto id : held_) bytes += model_.bytes(id);
    std::size_t certain = 0;
    while (certain < bytes.size()) {
      const auto step = unicode::utf8_step(bytes, certain);
      if (!step.valid && step.truncated) break;
      certain += step.valid ? step.length : 1;  // the library replaces each broken byte
    }
    const std::vector<std::int32_t> rest(held_.begin() + static_cast<std::ptrdiff_t>(certain), held_.end());
    held_.resize(certain);
    auto shown = say_held();
    held_ = rest;
    return shown;
  }

  std::string say_held() {
    if (held_.empty()) return "";
    auto ids = begun_ ? model_.anchor_ : leading_;
    ids.insert(ids.end(), held_.begin(), held_.end());
    auto said = model_.decode(ids);
    if (begun_) said.erase(0, model_.anchor_text_.size());
    // Control pieces leave the beginning as it was; a piece that came just before it twice says no more than once.
    const bool counts = !model_.is_control(held_.back()) && (leading_.empty() || leading_.back() != held_.back());
    if (!begun_ && said.empty() && counts) leading_.push_back(held_.back());
    begun_ = begun_ || !said.empty();
    held_.clear();
    return said;
  }

  const SentencePieceModel& model_;
  bool begun_ = false;
  std::vector<std::int32_t> leading_, held_;
};

std::unique_ptr<Tokenizer::Decoder> SentencePieceModel::decoder() const { return std::make_unique<Decoder>(*this); }

}  // namespace tessera::tokenizers

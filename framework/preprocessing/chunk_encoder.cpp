#include "framework/preprocessing/chunk_encoder.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "framework/unicode/utf8.h"

namespace tessera::preprocessing {
namespace {

constexpr std::size_t most_ids_kept = std::size_t{1} << 20U;

std::string not_utf8(std::size_t at) {
  return text("byte ", at + 1, " of the line is not UTF-8; convert the file, for example with iconv");
}

}  // namespace

void EncodedChunk::clear() {
  for (auto& output : outputs) {
    output.tokens.clear();
    output.lengths.clear();
    output.sequences.clear();
  }
  documents = lines = skipped = 0;
  bad.clear();
}

ChunkEncoder::ChunkEncoder(const tokenizers::Tokenizer& tokenizer, const EncodingOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      item_(indexed::size_of(indexed::token_type_for(tokenizer.vocab_size()))),
      encoder_(tokenizer.encoder()),
      json_(options.keys) {}

void ChunkEncoder::encode(const TextChunk& chunk, EncodedChunk& out) {
  out.clear();
  out.outputs.resize(options_.keys.size() * static_cast<std::size_t>(options_.dealing.partitions));
  switch (options_.formats[static_cast<std::size_t>(chunk.input)]) {
    case files::TextFormat::json_lines:
      return encode_json(chunk, out);
    case files::TextFormat::blank_lines:
      return encode_paragraphs(chunk, out);
    case files::TextFormat::whole_file:
      return encode_part(chunk, out);
  }
}

// False: stop here.
bool ChunkEncoder::note_bad(EncodedChunk& out, std::int64_t line, std::string what) const {
  if (options_.skip_bad) ++out.skipped;
  if (out.bad.size() < EncodedChunk::most_bad_told) out.bad.push_back({line, std::move(what)});
  return options_.skip_bad;
}

void ChunkEncoder::encode_json(const TextChunk& chunk, EncodedChunk& out) {
  const bool is_utf8 = unicode::first_not_utf8(chunk.bytes) == std::string_view::npos;
  std::string_view rest = chunk.bytes, line;
  std::string what;
  const auto keys = options_.keys.size();
  while (take_line(rest, line)) {
    const auto partition = options_.dealing.partition_of(chunk.first_line + out.lines, chunk.input);
    auto* outputs = out.outputs.data() + static_cast<std::size_t>(partition) * keys;
    if (encode_json_line(line, is_utf8, outputs, what))
      ++out.documents;
    else if (!note_bad(out, out.lines, std::move(what)))
      return;
    ++out.lines;
  }
}

bool ChunkEncoder::encode_json_line(std::string_view line, bool is_utf8, EncodedChunk::Output* outputs,
                                    std::string& what) {
  if (!is_utf8) {
    if (const auto at = unicode::first_not_utf8(line); at != std::string_view::npos) {
      what = not_utf8(at);
      return false;
    }
  }
  marks_.clear();
  try {
    json_.parse(line);
    if (options_.lists_only)
      for (std::size_t k = 0; k < json_.keys(); ++k)
        if (!json_.is_list(k))
          throw ConfigError(text("the value of '", options_.keys[k],
                                 "' is one string; --split-sentences takes lists of sentences: the model that splits "
                                 "plain text (NLTK's punkt) is not available, split it with another program"));
    for (std::size_t k = 0; k < json_.keys(); ++k) {
      marks_.emplace_back(outputs[k]);
      for (const auto sentence : json_.texts(k)) encode_text(sentence, outputs[k]);
      end_document(outputs[k], marks_.back().lengths);
    }
  } catch (const ConfigError& error) {
    for (std::size_t k = 0; k < marks_.size(); ++k) marks_[k].restore(outputs[k]);
    what = error.what();
    return false;
  }
  return true;
}

void ChunkEncoder::encode_text(std::string_view text, EncodedChunk::Output& to) {
  if (ids_.capacity() > most_ids_kept) ids_ = {};  // after a very long text
  ids_.clear();
  encoder_->encode(text, ids_);
  if (ids_.empty()) return;
  if (ids_.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw ConfigError(tessera::text("a text has ", ids_.size(),
                                    " tokens; at most 2147483646 fit into one sequence, split the document"));
  to.lengths.push_back(static_cast<std::int32_t>(ids_.size()));
  store_ids(to);
}

void ChunkEncoder::store_ids(EncodedChunk::Output& to) {
  const auto before = to.tokens.size();
  to.tokens.resize(before + ids_.size() * item_);
  auto* at = to.tokens.data() + before;
  if (item_ == sizeof(std::int32_t)) {
    std::memcpy(at, ids_.data(), ids_.size() * item_);
    return;
  }
  std::uint32_t bits = 0;  // of all ids
  for (const auto id : ids_) {
    const auto narrow = static_cast<std::uint16_t>(id);
    bits |= static_cast<std::uint32_t>(id);
    std::memcpy(at, &narrow, sizeof narrow);
    at += sizeof narrow;
  }
  if (bits > std::numeric_limits<std::uint16_t>::max()) refuse_wide_id();
}

// The count of a vocabulary with holes is not its largest id.
void ChunkEncoder::refuse_wide_id() const {
  const auto is_wide = [](std::int32_t id) { return id < 0 || id > std::numeric_limits<std::uint16_t>::max(); };
  const auto id = *std::find_if(ids_.begin(), ids_.end(), is_wide);
  throw ConfigError(tessera::text("the tokenizer gives the token id ", id, ", but its vocabulary has only ",
                                  tokenizer_.vocab_size(),
                                  " tokens; as in Megatron-LM, they are stored in 16 bits, which hold ids up to 65535; "
                                  "renumber the tokens in the tokenizer's files from 0 without gaps"));
}

void ChunkEncoder::end_document(EncodedChunk::Output& to, std::size_t sequences_before) {
  const auto sequences = to.lengths.size() - sequences_before;
  if (options_.append_eod && sequences > 0) {
    ids_.assign(1, tokenizer_.eod());
    store_ids(to);
    ++to.lengths.back();
  }
  to.sequences.push_back(static_cast<std::int32_t>(sequences));
}

void ChunkEncoder::encode_paragraphs(const TextChunk& chunk, EncodedChunk& out) {
  std::string_view rest = chunk.bytes, paragraph;
  auto& to = out.outputs.front();
  for (std::int64_t first_line = 0; take_paragraph(rest, paragraph, out.lines, first_line);) {
    const Mark mark(to);
    if (const auto at = unicode::first_not_utf8(paragraph); at != std::string_view::npos) {
      const auto before = paragraph.substr(0, at);
      const auto line = first_line + std::count(before.begin(), before.end(), '\n');
      const auto begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
      if (!note_bad(out, line, not_utf8(at - begin))) return;
      continue;
    }
    try {
      encode_text(paragraph, to);
      end_document(to, mark.lengths);
      ++out.documents;
    } catch (const ConfigError& error) {
      mark.restore(to);
      if (!note_bad(out, first_line, error.what())) return;
    }
  }
}

// A document that lacks a part is another document, so nothing is skipped here.
void ChunkEncoder::encode_part(const TextChunk& chunk, EncodedChunk& out) {
  auto& to = out.outputs.front();
  const std::string_view part = chunk.bytes;
  if (const auto at = unicode::first_not_utf8(part); at != std::string_view::npos) {
    const auto before = part.substr(0, at);
    const auto begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    out.bad.push_back({std::count(before.begin(), before.end(), '\n'), not_utf8(at - begin)});
    return;
  }
  try {
    encode_text(part, to);
    if (chunk.ends_document) {
      end_document(to, 0);
      ++out.documents;
    }
  } catch (const ConfigError& error) {
    out.bad.push_back({0, error.what()});
  }
  out.lines = std::count(part.begin(), part.end(), '\n');
}

}  // namespace tessera::preprocessing

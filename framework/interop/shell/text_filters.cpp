#include <algorithm>
#include <cctype>
#include <sstream>
#include <utility>

#include "framework/interop/shell/program_options.h"
#include "framework/interop/shell/script_evaluator.h"

// tr, cut, wc, head and tail.

namespace tessera::shell {
namespace {

using Words = std::vector<std::string>;
using Input = std::optional<std::string>;

unsigned char byte(char c) { return static_cast<unsigned char>(c); }

/// Reads a set of tr: a-z, [:digit:], \n, \141.
class TrSet {
 public:
  explicit TrSet(const std::string& words) : words_(words) {}

  /// All its characters in order. Nothing: it is not valid, or is not read here.
  Input characters() {
    while (i_ < words_.size())
      if (!next()) return std::nullopt;
    return out_;
  }
  bool has_class() const { return has_class_; }  ///< other than [:lower:] and [:upper:]

 private:
  bool next() {
    if (words_.compare(i_, 2, "[:") == 0) return named_class();
    const bool repeats = words_[i_] == '[' && i_ + 2 < words_.size() && words_[i_ + 2] == '*';
    if (repeats || words_.compare(i_, 2, "[=") == 0) return false;
    const auto first = byte(one());
    if (i_ + 1 >= words_.size() || words_[i_] != '-') return out_ += static_cast<char>(first), true;
    ++i_;
    const auto last = byte(one());
    for (int c = first; c <= last; ++c) out_ += static_cast<char>(c);
    return first <= last;
  }

  char one() {
    const char c = words_[i_++];
    if (c != '\\' || i_ == words_.size()) return c;
    int code = 0, digits = 0;
    for (; digits < 3 && i_ < words_.size() && words_[i_] >= '0' && words_[i_] <= '7'; ++digits)
      code = code * 8 + (words_[i_++] - '0');
    if (digits > 0) return static_cast<char>(code);
    constexpr std::string_view letters = "abfnrtv", bytes = "\a\b\f\n\r\t\v";
    const char letter = words_[i_++];
    const auto known = letters.find(letter);
    return known == std::string_view::npos ? letter : bytes[known];
  }

  bool named_class() {
    static const std::map<std::string, int (*)(int)> classes = {
        {"alpha", std::isalpha}, {"digit", std::isdigit}, {"alnum", std::isalnum}, {"blank", std::isblank},
        {"space", std::isspace}, {"punct", std::ispunct}, {"lower", std::islower}, {"upper", std::isupper}};
    const auto end = words_.find(":]", i_ + 2);
    if (end == std::string::npos) return false;
    const auto name = words_.substr(i_ + 2, end - i_ - 2);
    const auto known = classes.find(name);
    if (known == classes.end()) return false;
    for (int c = 0; c < 128; ++c)
      if (known->second(c) != 0) out_ += static_cast<char>(c);
    has_class_ = has_class_ || (name != "lower" && name != "upper");
    i_ = end + 2;
    return true;
  }

  const std::string words_;
  std::string out_;
  std::size_t i_ = 0;
  bool has_class_ = false;
};

Input translated(const Words& words, const std::string& input) {
  const auto options =
      program_options(words, {"cCds", "", {{"complement", 'c'}, {"delete", 'd'}, {"squeeze-repeats", 's'}}});
  if (!options) return std::nullopt;
  const bool complement = options->has('c') || options->has('C'), deletes = options->has('d');
  const bool squeezes = options->has('s');
  const auto& sets = options->operands;
  const bool translates = sets.size() == 2 && !deletes;
  if (!translates && (sets.size() != 1 || deletes == squeezes)) return std::nullopt;
  const auto from = TrSet(sets[0]).characters();
  TrSet second(translates ? sets[1] : sets[0]);
  const auto to = second.characters();
  // In a translation -c orders the characters that the set lacks: of these only the last of `to` is certain.
  if (!from || !to || (translates && (to->empty() || second.has_class() || (complement && to->size() > 1))))
    return std::nullopt;
  std::string out;
  for (const char c : input) {
    const auto at = complement ? (from->find(c) == std::string::npos ? 0 : std::string::npos) : from->rfind(c);
    const bool found = at != std::string::npos;
    if (found && deletes) continue;
    const char now = found && translates ? (*to)[std::min(at, to->size() - 1)] : c;
    const bool repeats = translates ? to->find(now) != std::string::npos : found;
    if (squeezes && repeats && !out.empty() && out.back() == now) continue;
    out += now;
  }
  return out;
}

Words lines_of(const std::string& words) {
  Words out;
  std::istringstream in(words);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

/// The fields or characters that cut chooses: "1,3-5,7-", counted from 1.
class CutList {
 public:
  /// False: the list is not valid.
  bool read(const std::string& list) {
    std::istringstream in(list);
    for (std::string part; std::getline(in, part, ',');)
      if (!range(part)) return false;
    return !ranges_.empty() && list.back() != ',';
  }
  bool has(std::size_t number) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [number](const auto& one) { return number >= one.first && number <= one.second; });
  }

 private:
  bool range(const std::string& part) {
    const auto dash = std::min(part.find('-'), part.size());
    const auto first = part.substr(0, dash), last = dash < part.size() ? part.substr(dash + 1) : first;
    const auto is_count = [](const std::string& words) { return is_number(words) && std::stoul(words) > 0; };
    if ((!first.empty() && !is_count(first)) || (!last.empty() && !is_count(last)) || (first.empty() && last.empty()))
      return false;
    ranges_.emplace_back(first.empty() ? 1 : std::stoul(first), last.empty() ? std::string::npos : std::stoul(last));
    return ranges_.back().first <= ranges_.back().second;
  }
  std::vector<std::pair<std::size_t, std::size_t>> ranges_;
};

Words fields_of(const std::string& line, char separator) {
  Words out = {""};
  for (const char c : line) {
    if (c == separator)
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

Input cut(const Words& words, const std::string& input) {
  constexpr char complement = '!';  // has no letter
  const auto options = program_options(words, {"s",
                                               "dfcb",
                                               {{"delimiter", 'd'},
                                                {"fields", 'f'},
                                                {"characters", 'c'},
                                                {"bytes", 'b'},
                                                {"only-delimited", 's'},
                                                {"complement", complement}}});
  if (!options || !options->operands.empty()) return std::nullopt;
  const bool by_field = options->has('f');
  if (by_field + options->has('c') + options->has('b') != 1) return std::nullopt;
  const auto separator = options->has('d') ? options->given.at('d') : "\t";
  CutList list;
  if (separator.size() != 1 || !list.read(options->given.at(by_field ? 'f' : options->has('c') ? 'c' : 'b')))
    return std::nullopt;
  if (!by_field && (options->has('d') || options->has('s'))) return std::nullopt;
  std::string out;
  for (const auto& line : lines_of(input)) {
    const bool whole = by_field && line.find(separator) == std::string::npos;
    if (whole && options->has('s')) continue;
    if (whole) {
      out += line + "\n";
      continue;
    }
    std::size_t number = 0, chosen = 0;
    const auto parts = by_field ? fields_of(line, separator[0]) : Words();
    for (std::size_t i = 0; i < (by_field ? parts.size() : line.size()); ++i)
      if (list.has(++number) != options->has(complement)) {
        if (by_field && chosen++ > 0) out += separator;
        out += by_field ? parts[i] : std::string(1, line[i]);
      }
    out += "\n";
  }
  return out;
}

Input counted(const Words& words, const std::string& input) {
  const auto options = program_options(words, {"lwc", "", {{"lines", 'l'}, {"words", 'w'}, {"bytes", 'c'}}});
  if (!options || !options->operands.empty() || options->given.size() != 1) return std::nullopt;
  long count = 0;
  std::istringstream in(input);
  if (options->has('l'))
    count = std::count(input.begin(), input.end(), '\n');
  else if (options->has('c'))
    count = static_cast<long>(input.size());
  else
    for (std::string word; in >> word;) ++count;
  return std::to_string(count) + "\n";
}

/// head and tail: -n N, -N, -c N; head -n -N leaves out the last ones, tail -n +N begins with the N-th.
Input ends(Words words, const std::string& input) {
  for (std::size_t i = 1; i < words.size(); ++i)
    if (i == 1 && words[i].size() > 1 && words[i][0] == '-' && is_number(words[i].substr(1))) words[i].insert(1, "n");
  const auto options = program_options(words, {"q", "nc", {{"lines", 'n'}, {"bytes", 'c'}, {"quiet", 'q'}}});
  if (!options || !options->operands.empty() || (options->has('n') && options->has('c'))) return std::nullopt;
  const bool head = words[0] == "head", bytes = options->has('c');
  auto number = bytes ? options->given.at('c') : options->has('n') ? options->given.at('n') : "10";
  const bool from_other_end = number[0] == (head ? '-' : '+');
  if (number[0] == '-' || number[0] == '+') number.erase(0, 1);
  if (!is_number(number)) return std::nullopt;
  std::vector<std::size_t> begins = {0};  // of the lines or bytes, and the end
  for (std::size_t i = 1; i <= input.size(); ++i)
    if (bytes || input[i - 1] == '\n' || i == input.size()) begins.push_back(i);
  const auto total = begins.size() - 1, count = std::min<std::size_t>(std::stoul(number), total);
  if (head) return input.substr(0, begins[from_other_end ? total - count : count]);
  return input.substr(begins[!from_other_end ? total - count : count > 0 ? count - 1 : 0]);
}

}  // namespace

std::optional<ProgramOptions> program_options(const std::vector<std::string>& words, const KnownOptions& known) {
  ProgramOptions out;
  bool ended = false;
  const auto takes = [&known](char letter) { return known.valued.find(letter) != std::string_view::npos; };
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto& word = words[i];
    if (ended || word.size() < 2 || word[0] != '-') {
      out.operands.push_back(word);
    } else if (word == "--") {
      ended = true;
    } else if (word[1] == '-') {
      const auto equals = std::min(word.find('='), word.size());
      const auto name = known.named.find(std::string_view(word).substr(2, equals - 2));
      if (name == known.named.end() || (!takes(name->second) && equals < word.size())) return std::nullopt;
      if (takes(name->second) && equals == word.size() && ++i == words.size()) return std::nullopt;
      out.given[name->second] = !takes(name->second) ? "" : equals < word.size() ? word.substr(equals + 1) : words[i];
    } else {
      for (std::size_t k = 1; k < word.size(); ++k) {
        if (known.bare.find(word[k]) != std::string_view::npos) {
          out.given[word[k]] = "";
          continue;
        }
        const bool apart = k + 1 == word.size();
        if (!takes(word[k]) || (apart && i + 1 == words.size())) return std::nullopt;
        out.given[word[k]] = apart ? words[++i] : word.substr(k + 1);
        break;
      }
    }
  }
  return out;
}

std::optional<std::string> filtered(const std::vector<std::string>& words, const std::string& input) {
  const auto& name = words[0];
  if (name == "tr") return translated(words, input);
  if (name == "cut") return cut(words, input);
  if (name == "wc") return counted(words, input);
  if (name == "head" || name == "tail") return ends(words, input);
  return std::nullopt;
}

}  // namespace tessera::shell

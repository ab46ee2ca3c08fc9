#include "framework/unicode/regex.h"

#include <algorithm>
#include <utility>

#include "framework/base/error.h"
#include "framework/unicode/regex_syntax.h"
#include "framework/unicode/utf8_fast.h"

namespace tessera::unicode {
namespace {

constexpr std::size_t most_steps = 20000;
constexpr std::uint32_t unbounded = RegexNode::unbounded;

// The characters that a match of a node can begin with, and whether it can be empty.
struct First {
  CodeSet set;
  bool empty = false;
};

First first_of(const RegexNode& node) {
  using Kind = RegexNode::Kind;
  switch (node.kind) {
    case Kind::set:
      return {node.set, false};
    case Kind::sequence: {
      First all{{}, true};
      for (const auto& part : node.parts) {
        if (!all.empty) break;
        const auto one = first_of(part);
        all.set = all.set | one.set;
        all.empty = one.empty;
      }
      return all;
    }
    case Kind::choice: {
      First all;
      for (const auto& part : node.parts) {
        const auto one = first_of(part);
        all.set = all.set | one.set;
        all.empty = all.empty || one.empty;
      }
      return all;
    }
    case Kind::repeat: {
      auto one = first_of(node.parts[0]);
      one.empty = one.empty || node.least == 0;
      return one;
    }
    case Kind::atomic:
      return first_of(node.parts[0]);
    default:
      return {{}, true};
  }
}

}  // namespace

class RegexCompiler {
 public:
  RegexCompiler(Regex& regex, const RegexNode& root) : regex_(regex) {
    compile(root);
    add(Kind::accept);
    if (const auto first = first_of(root); !first.empty) regex_.first_.emplace(first.set);
  }

 private:
  using Step = Regex::Step;
  using Kind = Step::Kind;

  std::uint32_t here() const { return static_cast<std::uint32_t>(regex_.steps_.size()); }

  std::uint32_t add(Kind kind) {
    if (regex_.steps_.size() >= most_steps)
      throw ConfigError(text("regular expression '", regex_.pattern_, "': is too large; its compiled form may have ",
                             most_steps, " steps"));
    Step step;
    step.kind = kind;
    regex_.steps_.push_back(step);
    return here() - 1;
  }
  Step& at(std::uint32_t index) { return regex_.steps_[index]; }

  std::uint32_t bits_of(const CodeSet& set) {
    for (std::uint32_t i = 0; i < sets_.size(); ++i)
      if (sets_[i] == set) return i;
    sets_.push_back(set);
    regex_.sets_.emplace_back(set);
    return static_cast<std::uint32_t>(sets_.size() - 1);
  }

  void add_set(const CodeSet& set) {
    const auto& ranges = set.ranges();
    if (ranges.size() == 1 && ranges[0].first == ranges[0].last)
      at(add(Kind::letter)).set = ranges[0].first;
    else
      at(add(Kind::one)).set = bits_of(set);
  }

  void compile(const RegexNode& node) {
    switch (node.kind) {
      case RegexNode::Kind::set:
        return add_set(node.set);
      case RegexNode::Kind::sequence:
        for (const auto& part : node.parts) compile(part);
        return;
      case RegexNode::Kind::choice:
        return choice(node);
      case RegexNode::Kind::repeat:
        return repeat(node);
      case RegexNode::Kind::atomic:
        return inside(node, Kind::atomic);
      case RegexNode::Kind::ahead:
        return look(node, Kind::ahead, Kind::ahead_one);
      case RegexNode::Kind::not_ahead:
        return look(node, Kind::not_ahead, Kind::not_ahead_one);
      case RegexNode::Kind::behind:
        return look(node, Kind::behind_one, Kind::behind_one);
      case RegexNode::Kind::not_behind:
        return look(node, Kind::not_behind_one, Kind::not_behind_one);
      case RegexNode::Kind::line_begin:
        add(Kind::line_begin);
        return;
      case RegexNode::Kind::line_end:
        add(Kind::line_end);
        return;
      case RegexNode::Kind::text_begin:
        add(Kind::text_begin);
        return;
      case RegexNode::Kind::text_end:
        add(Kind::text_end);
        return;
    }
  }

  void look(const RegexNode& node, Kind general, Kind one) {
    if (node.parts[0].kind == RegexNode::Kind::set)
      at(add(one)).set = bits_of(node.parts[0].set);
    else
      inside(node, general);
  }

  void inside(const RegexNode& node, Kind kind) {
    const auto begin = add(kind);
    compile(node.parts[0]);
    add(Kind::accept);
    at(begin).other = here();
  }

  // Each branch but the last is tried only where its first character fits.
  void choice(const RegexNode& node) {
    std::vector<std::uint32_t> ends;
    for (std::size_t i = 0; i < node.parts.size(); ++i) {
      if (i + 1 == node.parts.size()) {
        compile(node.parts[i]);
        break;
      }
      const auto first = first_of(node.parts[i]);
      const auto split = add(Kind::split);
      // 0 means no set, hence the 1.
      if (!first.empty) at(split).least = bits_of(first.set) + 1;
      compile(node.parts[i]);
      ends.push_back(add(Kind::jump));
      at(split).other = here();
    }
    for (const auto end : ends) at(end).other = here();
  }

  void repeat(const RegexNode& node) {
    const auto& target = node.parts[0];
    if (target.kind == RegexNode::Kind::set) {
      const auto step = add(node.greed == RegexNode::Greed::reluctant ? Kind::few : Kind::many);
      at(step).possessive = node.greed == RegexNode::Greed::possessive;
      at(step).set = bits_of(target.set);
      at(step).least = node.least;
      at(step).most = node.most;
      return;
    }
    if (node.greed == RegexNode::Greed::possessive) {
      const auto begin = add(Kind::atomic);
      repeat_group(target, node.least, node.most, false);
      add(Kind::accept);
      at(begin).other = here();
      return;
    }
    repeat_group(target, node.least, node.most, node.greed == RegexNode::Greed::reluctant);
  }

  // `least` copies, then a loop or optional copies.
  void repeat_group(const RegexNode& target, std::uint32_t least, std::uint32_t most, bool reluctant) {
    for (std::uint32_t i = 0; i < least; ++i) compile(target);
    if (most == unbounded) {
      const auto counter = regex_.counters_++;
      const auto split = add(Kind::split);
      at(split).possessive = reluctant;
      // `moved` leaves the loop if a pass matched nothing, which would otherwise repeat without end.
      at(add(Kind::mark)).set = counter;
      compile(target);
      const auto moved = add(Kind::moved);
      at(moved).set = counter;
      at(add(Kind::jump)).other = split;
      at(split).other = at(moved).other = here();
      return;
    }
    std::vector<std::uint32_t> splits;
    for (auto i = least; i < most; ++i) {
      splits.push_back(add(Kind::split));
      at(splits.back()).possessive = reluctant;
      compile(target);
    }
    for (const auto split : splits) at(split).other = here();
  }

  Regex& regex_;
  std::vector<CodeSet> sets_;
};

Regex::Regex(std::string_view pattern) : pattern_(pattern) { RegexCompiler(*this, parse_regex(pattern)); }

Regex Regex::literal(std::string_view words) {
  Regex regex;
  regex.pattern_ = words;
  RegexNode root;
  for (std::size_t at = 0; at < words.size();) {
    const auto [code, length] = character_at(words, at);
    root.parts.push_back({.kind = RegexNode::Kind::set, .set = CodeSet::of(code), .parts = {}});
    at += length;
  }
  RegexCompiler(regex, root);
  return regex;
}

void Regex::Finder::count() {
  if (++steps_ > 10'000'000 + 64 * text_.size())
    throw ConfigError(text("regular expression '", regex_.pattern_, "': backtracks too often on a text of ",
                           text_.size(), " bytes; use a simpler pattern"));
}

std::optional<Regex::Match> Regex::Finder::next() {
  counters_.resize(regex_.counters_);
  for (auto begin = from_; begin <= text_.size();) {
    // A pattern with a first character matches nothing at the end of the text.
    if (begin == text_.size() && regex_.first_) break;
    const auto length = begin < text_.size() ? character_at(text_, begin).length : 1;
    std::size_t end = 0;
    stack_.clear();
    if (regex_.first_ && !regex_.first_->has(character_at(text_, begin).code)) {
      begin += length;
      continue;
    }
    count();
    // An empty match directly behind the last match is not reported, as in Rust's and Oniguruma's iterators.
    if (!run(0, begin, end) || (end == begin && last_end_ == end)) {
      begin += length;
      continue;
    }
    from_ = end;
    last_end_ = end;
    return Match{begin, end};
  }
  from_ = text_.size() + 1;
  return std::nullopt;
}

// A run of characters of one class. False: too few.
bool Regex::Finder::repeat(const Step& step, std::uint32_t& program, std::size_t& at) {
  const auto& set = regex_.sets_[step.set];
  const bool reluctant = step.kind == Step::Kind::few;
  const auto most = reluctant ? step.least : step.most;
  std::uint32_t taken = 0;
  auto limit = at;
  while (taken < most && at < text_.size()) {
    const auto next = character_at(text_, at);
    if (!set.has(next.code)) break;
    at += next.length;
    if (++taken == step.least) limit = at;
  }
  if (taken < step.least) return false;
  if (reluctant) {
    stack_.push_back({Frame::Kind::grow, program, at, step.most == unbounded ? unbounded : step.most - taken});
  } else if (!step.possessive && at > limit) {
    stack_.push_back({Frame::Kind::shrink, program, at, limit});
  }
  ++program;
  return true;
}

// Continues with the newest alternative above `base`; returns false if there is none.
bool Regex::Finder::resume(std::size_t base, std::uint32_t& program, std::size_t& at) {
  while (stack_.size() > base) {
    count();
    auto& frame = stack_.back();
    switch (frame.kind) {
      case Frame::Kind::counter:
        counters_[frame.program] = frame.at;
        stack_.pop_back();
        break;
      case Frame::Kind::plain:
        program = frame.program;
        at = frame.at;
        stack_.pop_back();
        return true;
      case Frame::Kind::shrink:
        at = before(text_, frame.at);
        program = frame.program + 1;
        if (at > frame.limit)
          frame.at = at;
        else
          stack_.pop_back();
        return true;
      case Frame::Kind::grow: {
        const auto& step = regex_.steps_[frame.program];
        if (frame.limit == 0 || frame.at >= text_.size() ||
            !regex_.sets_[step.set].has(character_at(text_, frame.at).code)) {
          stack_.pop_back();
          break;
        }
        frame.at += character_at(text_, frame.at).length;
        if (frame.limit != unbounded) --frame.limit;
        at = frame.at;
        program = frame.program + 1;
        return true;
      }
    }
  }
  return false;
}

bool Regex::Finder::run(std::uint32_t program, std::size_t at, std::size_t& end) {
  using Kind = Step::Kind;
  const auto base = stack_.size();
  for (;;) {
    const auto& step = regex_.steps_[program];
    bool holds = true;
    const auto fits = [&] { return at < text_.size() && regex_.sets_[step.set].has(character_at(text_, at).code); };
    const auto fits_before = [&] {
      return at > 0 && regex_.sets_[step.set].has(character_at(text_, before(text_, at)).code);
    };
    switch (step.kind) {
      case Kind::letter:
      case Kind::one: {
        if (at >= text_.size()) {
          holds = false;
          break;
        }
        const auto next = character_at(text_, at);
        holds = step.kind == Kind::letter ? next.code == step.set : regex_.sets_[step.set].has(next.code);
        at += next.length;
        ++program;
        break;
      }
      case Kind::many:
      case Kind::few:
        holds = repeat(step, program, at);
        break;
      case Kind::split:
        if (step.least != 0 &&
            (at >= text_.size() || !regex_.sets_[step.least - 1].has(character_at(text_, at).code))) {
          program = step.other;
          break;
        }
        // `possessive` marks a split that prefers to continue behind the loop
        stack_.push_back({Frame::Kind::plain, step.possessive ? program + 1 : step.other, at, 0});
        program = step.possessive ? step.other : program + 1;
        break;
      case Kind::jump:
        count();
        program = step.other;
        break;
      case Kind::ahead:
      case Kind::not_ahead:
      case Kind::atomic: {
        std::size_t inner_end = 0;
        const bool found = run(program + 1, at, inner_end);
        holds = found != (step.kind == Kind::not_ahead);
        if (step.kind == Kind::atomic) at = inner_end;
        program = step.other;
        break;
      }
      case Kind::ahead_one:
        holds = fits();
        ++program;
        break;
      case Kind::not_ahead_one:
        holds = !fits();
        ++program;
        break;
      case Kind::behind_one:
        holds = fits_before();
        ++program;
        break;
      case Kind::not_behind_one:
        holds = !fits_before();
        ++program;
        break;
      case Kind::line_begin:
        holds = at == 0 || (text_[at - 1] == '\n' && at < text_.size());
        ++program;
        break;
      case Kind::line_end:
        holds = at == text_.size() || text_[at] == '\n';
        ++program;
        break;
      case Kind::text_begin:
        holds = at == 0;
        ++program;
        break;
      case Kind::text_end:
        holds = at == text_.size();
        ++program;
        break;
      case Kind::mark:
        stack_.push_back({Frame::Kind::counter, step.set, counters_[step.set], 0});
        counters_[step.set] = at;
        ++program;
        break;
      case Kind::moved:
        program = counters_[step.set] == at ? step.other : program + 1;
        break;
      case Kind::accept:
        // the alternatives left are never taken up; counters of loops inside are set again before they are read
        stack_.resize(base);
        end = at;
        return true;
    }
    if (!holds && !resume(base, program, at)) return false;
  }
}

}  // namespace tessera::unicode

#include "framework/model/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/nn/key_value_cache.h"

namespace tessera::model {
namespace {

struct Candidate {
  std::int32_t token;
  double weight;
};

/// The top_k most likely tokens (all if top_k is 0) in descending order, with weights relative to the most likely
/// token.
std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& s) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const auto la = logits[static_cast<std::size_t>(a)], lb = logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  // Only the first `keep` candidates need to be in order.
  const auto keep = s.top_k > 0 ? std::min(order.size(), static_cast<std::size_t>(s.top_k)) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(), likelier);
  const double most = logits[static_cast<std::size_t>(order[0])];
  std::vector<Candidate> out;
  for (std::size_t i = 0; i < keep; ++i)
    out.push_back({order[i], std::exp((logits[static_cast<std::size_t>(order[i])] - most) / s.temperature)});
  return out;
}

/// Throws if a logit is not finite: sampling would otherwise repeat one token without end.
void check_logits(std::span<const float> logits, std::int64_t position) {
  if (std::all_of(logits.begin(), logits.end(), [](float one) { return std::isfinite(one); })) return;
  throw Error(text("generate: the logits after ", position,
                   " tokens are not finite; the model's weights are damaged, "
                   "or its training diverged: generate from an older checkpoint"));
}

/// Reduces the candidates to the shortest prefix that has at least `top_p` of the total weight (nucleus sampling).
void cut_to_nucleus(std::vector<Candidate>& from, double top_p) {
  double all = 0, held = 0;
  for (const auto& c : from) all += c.weight;
  std::size_t keep = 0;
  while (keep < from.size() && held < top_p * all) held += from[keep++].weight;
  from.resize(std::max<std::size_t>(keep, 1));
}

/// Applies the penalty once to each token that `seen` has.
void penalise(std::span<float> logits, const std::vector<bool>& seen, double penalty) {
  for (std::size_t i = 0; i < logits.size() && i < seen.size(); ++i)
    if (seen[i]) logits[i] = static_cast<float>(logits[i] < 0 ? logits[i] * penalty : logits[i] / penalty);
}

/// Positions behind the prompt: of its tokens, or of a video whose frames are far apart in time.
std::int64_t positions_of(const Prompt& prompt) {
  return std::ssize(prompt.tokens) + std::max<std::int64_t>(prompt.position_shift, 0);
}

/// One text while it is generated.
class Text {
 public:
  Text(std::span<const std::int32_t> prompt, const Sampling& sampling, const GenerationLimits& limits,
       std::uint64_t sequence)
      : sampling_(sampling),
        limits_(limits),
        sequence_(sequence),
        tokens_(std::ssize(prompt)),
        seen_(static_cast<std::size_t>(limits.vocabulary)) {
    for (const auto token : prompt) seen_[static_cast<std::size_t>(token)] = true;
  }
  /// Samples the next token from its logits, which it may change. Returns whether the text goes on with it.
  bool take(std::span<float> logits) {
    const auto real = logits.first(static_cast<std::size_t>(limits_.vocabulary));
    check_logits(real, tokens_);
    if (sampling_.repetition_penalty != 1) penalise(real, seen_, sampling_.repetition_penalty);
    last_ = choose_token(real, sampling_, sequence_, static_cast<std::uint64_t>(tokens_));
    seen_[static_cast<std::size_t>(last_)] = true;
    ++tokens_;
    return std::find(limits_.stop_tokens.begin(), limits_.stop_tokens.end(), last_) == limits_.stop_tokens.end();
  }
  std::int32_t last() const { return last_; }

 private:
  const Sampling& sampling_;
  const GenerationLimits& limits_;
  const std::uint64_t sequence_;
  std::int64_t tokens_;
  std::vector<bool> seen_;
  std::int32_t last_ = 0;
};

}  // namespace

void check_prompt(const Model& model, const Prompt& prompt, std::int64_t vocabulary) {
  const auto tokens = prompt.tokens;
  if (tokens.empty()) throw ConfigError("generate: the prompt has no token; give at least one");
  for (const auto token : tokens)
    if (token < 0 || token >= vocabulary)
      throw ConfigError(text("generate: token ", token, " of the prompt is beyond the vocabulary of ", vocabulary));
  if (std::ssize(tokens) > model.most_positions())
    throw ConfigError(text("generate: the prompt has ", tokens.size(), " tokens, but the model has ",
                           model.most_positions(), " positions; shorten it"));
  if (prompt.given == nullptr) return;
  if (const auto last = std::ranges::max(prompt.given->positions); last >= model.most_positions())
    throw ConfigError(text("generate: the images and videos of the prompt have positions up to ", last,
                           ", but the model has ", model.most_positions(),
                           " positions; shorten it, or correct the \"fps\" of its videos"));
}

std::int32_t choose_token(std::span<const float> logits, const Sampling& s, std::uint64_t sequence,
                          std::uint64_t position) {
  // Greedy decoding: no random number is drawn.
  if (s.temperature <= 0 || s.top_k == 1)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  auto open = candidates(logits, s);
  if (s.top_p < 1) cut_to_nucleus(open, s.top_p);
  double all = 0;
  for (const auto& c : open) all += c.weight;
  double left = RandomKey(s.seed, Purpose::sampling).uniform(sequence, position) * all;
  for (const auto& c : open) {
    left -= c.weight;
    if (left < 0) return c.token;
  }
  // Reached only by rounding of `left`.
  return open.back().token;
}

std::int64_t generate(const Model& model, autograd::Tape& tape, const Prompt& prompt, const Sampling& sampling,
                      const GenerationLimits& limits, std::uint64_t sequence,
                      const std::function<void(std::int32_t)>& on_token) {
  check_prompt(model, prompt, limits.vocabulary);
  const auto given = static_cast<std::int64_t>(prompt.tokens.size());
  // The last generated token is not an input, so one token more can be generated than there are positions left.
  const auto most = std::min(limits.most_tokens, model.most_positions() - positions_of(prompt) + 1);
  auto cache = model.make_cache(1, std::min(model.most_positions(), given + most));
  Text made_text(prompt.tokens, sampling, limits, sequence);
  for (std::int64_t made = 0; made < most; ++made) {
    const auto last = made_text.last();
    const auto fed = made == 0 ? prompt.tokens : std::span<const std::int32_t>(&last, 1);
    const bool goes_on = made_text.take(
        model.next_logits(tape, fed, std::ssize(fed), cache, made == 0 ? prompt.given : nullptr).floats());
    if (made == 0) cache.shift_positions(0, prompt.position_shift);
    tape.clear();
    if (!goes_on) return made;
    on_token(made_text.last());
  }
  return most;
}

bool may_be_together(const Model& model, std::span<const Prompt> prompts, const GenerationLimits& limits) {
  std::int64_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, positions_of(prompt));
  return prompts.size() > 1 && !model.computes_again() && limits.most_tokens - 1 <= model.most_positions() - longest;
}

void generate_together(const Model& model, autograd::Tape& tape, std::span<const Prompt> prompts,
                       const Sampling& sampling, const GenerationLimits& limits, std::uint64_t sequence,
                       const std::function<void(std::size_t, std::int32_t)>& on_token) {
  must(may_be_together(model, prompts, limits), "prompts are answered together if the model can");
  std::vector<Text> texts;
  std::vector<nn::KeyValueCache> caches;
  std::vector<bool> goes_on;
  std::int64_t longest = 0;
  for (const auto& prompt : prompts) {
    check_prompt(model, prompt, limits.vocabulary);
    const auto given = std::ssize(prompt.tokens);
    longest = std::max(longest, given);
    auto& cache = caches.emplace_back(model.make_cache(1, given));
    auto& own = texts.emplace_back(prompt.tokens, sampling, limits, sequence);
    goes_on.push_back(own.take(model.next_logits(tape, prompt.tokens, given, cache, prompt.given).floats()));
    cache.shift_positions(0, prompt.position_shift);
    tape.clear();
    if (goes_on.back()) on_token(texts.size() - 1, own.last());
  }
  auto cache = model.make_cache(std::ssize(prompts), longest + limits.most_tokens - 1);
  cache.join(caches);
  caches.clear();
  std::vector<std::int32_t> fed(texts.size());
  // A text that has ended is computed on, and not looked at.
  for (std::int64_t made = 1; made < limits.most_tokens && std::ranges::count(goes_on, true) > 0; ++made) {
    std::ranges::transform(texts, fed.begin(), [](const Text& one) { return one.last(); });
    {
      const auto all = model.next_logits(tape, fed, 1, cache, nullptr);
      const auto width = all.floats().size() / texts.size();
      for (std::size_t i = 0; i < texts.size(); ++i)
        if (goes_on[i]) goes_on[i] = texts[i].take(all.floats().subspan(i * width, width));
    }
    tape.clear();
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (goes_on[i]) on_token(i, texts[i].last());
  }
}

}  // namespace tessera::model

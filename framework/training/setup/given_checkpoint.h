#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/find.h"
#include "framework/checkpoint/format.h"
#include "framework/checkpoint/frozen_base.h"
#include "framework/training/setup/training_setup.h"
#include "framework/training/state/model_state.h"

namespace tessera::training {

/// Opens the checkpoint that training_config.load_checkpoint denotes, in any format: `place` is one, or a folder of
/// them, of which the newest is taken; see checkpoint::sort_newest_first. If that of another program cannot be opened,
/// the next one is, and `notes` say so. `step`: of those, the one of this iteration. Null: there is none, and the run's
/// own folder may be without. Throws ConfigError, naming `option`, if there must be one, or none has the iteration
/// `step`.
std::unique_ptr<checkpoint::OpenedCheckpoint> open_any(const TrainingSetup& setup, const std::filesystem::path& place,
                                                       std::vector<std::string>& notes,
                                                       std::optional<std::int64_t> step = {},
                                                       const std::string& option = "training_config.load_checkpoint");
/// The iteration of those in load_checkpoint that the recipe names (ckpt_step); none: the newest.
std::optional<std::int64_t> step_of_given(const TrainingSetup& setup);
/// The checkpoint that has the frozen parameters of `opened`; see checkpoint::with_frozen.
std::unique_ptr<checkpoint::OpenedCheckpoint> with_frozen(std::unique_ptr<checkpoint::OpenedCheckpoint> opened,
                                                          const TrainingSetup& setup);
/// Of `all`, those of the iteration `step`. Throws ConfigError, naming those that are in `place`, if there is none.
std::vector<checkpoint::FoundCheckpoint> of_step(std::vector<checkpoint::FoundCheckpoint> all, std::int64_t step,
                                                 const std::string& place);
/// Whether `place` is the folder `other`, by any path.
bool is_same_folder(const std::filesystem::path& place, const std::filesystem::path& other);

/// Names and shapes of all weights of the model. `held`: what this rank has of it, all of which it may be.
std::vector<checkpoint::TensorRange> all_of_model(const ModelSetup& model, std::vector<checkpoint::TensorRange> held);

/// `ranges` without adapters if `given` has none: a base model, beside which they begin with their initial values.
std::vector<checkpoint::TensorRange> without_new_adapters(const checkpoint::WeightSource& given,
                                                          std::vector<checkpoint::TensorRange> ranges);

/// `weights` of a model with a score head, as a language model without one has them: without the head; with `known`,
/// the names and shapes of all weights, also the output layer of `source`. If `source` has a score head, `weights`.
std::vector<checkpoint::TensorRange> without_score_head(const checkpoint::WeightSource& source,
                                                        std::vector<checkpoint::TensorRange> weights, bool known);
/// The parts `ranges` of the weights of `source`, or with moe_use_upcycling of those made of them, are written; see
/// checkpoint::load_all. `all`: the names and shapes of all weights of the model. Returns notes.
std::vector<std::string> load_weights(const checkpoint::WeightSource& source,
                                      const std::vector<checkpoint::TensorRange>& ranges,
                                      const std::vector<checkpoint::TensorRange>& all, bool upcycles);

/// Reads the trained parameters that `adapter`, a saved adapter, has. Returns notes, which name those that it does not
/// have. Throws ConfigError, naming the tensors, if it lacks a factor or has what `state` does not train.
std::vector<std::string> load_adapter(const checkpoint::WeightSource& adapter, const ModelSetup& model,
                                      ModelState& state);

/// Throws ConfigError if `source` has some of the `trained` weights, or with moe_use_upcycling what they are made of,
/// in a storage type that cannot be trained.
void refuse_packed(const checkpoint::WeightSource& source, const std::vector<checkpoint::TensorRange>& trained,
                   bool upcycles);

/// Maps the frozen parameters that `source` has in a file as this rank needs them; see FrozenWeights::map. Removes
/// their ranges from `ranges` and adds a note.
void map_frozen(const checkpoint::WeightSource& source, ModelState& state, std::vector<checkpoint::TensorRange>& ranges,
                std::vector<std::string>& notes);

/// Maps those of the frozen parameters `ranges` that `source`, a checkpoint of another program, has in another layout
/// from a folder that is written once in the run's folder, with all matrices that `wanted` is true for; see
/// checkpoint::lay_out. Removes their ranges from `ranges` and adds notes.
void map_laid_out(const checkpoint::OpenedCheckpoint& source, const TrainingSetup& setup,
                  const std::function<bool(const std::string& name)>& wanted, FrozenWeights& frozen,
                  std::vector<checkpoint::TensorRange>& ranges, std::vector<std::string>& notes);

/// Fills the frozen parameters with those of `given`, or of its base if it was saved without them: maps what can be
/// mapped, reads the rest. With moe_use_upcycling, those of a dense model are upcycled. Returns notes; `needed` gets
/// the base that was read. Throws ConfigError if a parameter is in neither.
std::vector<std::string> load_frozen(const checkpoint::OpenedCheckpoint& given, const TrainingSetup& setup,
                                     ModelState& state, std::optional<checkpoint::FrozenBase>& needed);

/// The sum of a number of each rank, modulo 2^64. Collective.
std::uint64_t sum_over_ranks(const comm::Communicator& world, std::uint64_t own, std::string_view who);
/// The digest of the frozen parameters of the whole model. Collective.
std::uint64_t frozen_digest(const comm::Communicator& world, ModelState& state, kernels::Threads& threads);
/// Throws ConfigError on all ranks if the frozen parameters are not those of `base`. Collective.
void check_base(const comm::Communicator& world, ModelState& state, kernels::Threads& threads,
                const checkpoint::FrozenBase& base);

/// Throws ConfigError if the checkpoint has a weight that has no place in the model, whose weights are `all`: then it
/// is of a larger one.
void refuse_left_over(const checkpoint::OpenedCheckpoint& saved, const std::vector<checkpoint::TensorRange>& all);
/// Throws ConfigError for a checkpoint of weights alone, which does not continue a run by itself.
void must_have_state(const checkpoint::OpenedCheckpoint& given, const checkpoint::Progress& progress);
/// Throws ConfigError for a checkpoint without the random seed, unless no_load_rng is given.
void must_have_seed(const checkpoint::OpenedCheckpoint& given, const checkpoint::Progress& progress,
                    const TrainingOptions& o);
/// Throws ConfigError if the samples of the training data come in an order that depends on those of a micro-batch, and
/// the run cannot continue in it after `progress`: as in Megatron-LM, only after a multiple of them.
void refuse_other_stride(const std::filesystem::path& folder, const checkpoint::Progress& progress,
                         const TrainingSetup& setup);

}  // namespace tessera::training

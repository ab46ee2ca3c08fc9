#pragma once

#include <string>

#include "framework/options/mappings.h"
#include "framework/options/report.h"

namespace tessera::flags {

/// The nested recipe of MindSpeed-Core-MS (train_config, accelerate_config, model_config.llm) as groups of ours; each
/// value keeps its place in the user's file. mappings/recipes/nested.yaml says what a path becomes:
///
///     roots: [x]                        below these every key must be in `paths`; other keys are ours and stay
///     paths:                            a path, or "x.y.*" for every key of a map
///       x.y: {to: group.key, and: group.other}    the value goes over unchanged, to one place or two
///       x.y: {means: {word: {group.key: value}}}  a word stands for these settings
///       x.y: {operators: fused}                   a list of words of `operators`; "a, b" is one too
///       x.y: {ignored: why}                       harmless to drop; it is noted
///     operators: {word: {fused: {group.key: value}, nofused: {...}}}   such a setting yields to any other
///     defaults: [{set: {group.key: value}, unless: [group.key]}]       theirs, where ours differ
///     assumed: [{set | copy: {group.key: value | group.key}, unless: [group.key], why: ...}]   noted when it is used
///     nulls: say nothing                also of keys that stay
///     overruled: {group.key: [group.other]}       where the first is true, the others are dropped, which is noted
///
/// Groups of ours may stand beside theirs, in the file, in a base or by --set: the higher layer wins, and two of one
/// layer that differ are a problem. So are a path that the table does not have, with the name it is most like, a word
/// that has no counterpart, and an operator in both lists.
options::Value read_nested(const options::Value& tree, const options::Mappings& mappings, options::Report& report);

/// The flat recipe of MindSpeed-Core-MS: groups and keys are ours, some words and defaults are not; by
/// mappings/recipes/core_ms_flat.yaml.
options::Value read_core_ms(const options::Value& tree, const options::Mappings& mappings, options::Report& report);
/// What shows that a flat recipe is theirs, "optimizer_config.optimizer_type SpeedAdamW"; empty when nothing does.
std::string mark_of_core_ms(const options::Value& tree, const options::Mappings& mappings);

}  // namespace tessera::flags

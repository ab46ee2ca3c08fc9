#pragma once

#include <string>

#include "framework/options/group.h"
#include "framework/options/mappings.h"
#include "framework/options/report.h"

namespace tessera::flags {

/// Converts the nested recipe of MindSpeed-Core-MS (train_config, accelerate_config, model_config.llm) to our groups;
/// each value keeps its position in the user's file. mappings/recipes/nested.yaml describes the conversion of a path:
///
///     roots: [x]                        below these every key must be in `paths`; other keys are ours and are kept
///     paths:                            a path, or "x.y.*" for every key of a map
///       x.y: {to: group.key, and: group.other}    the value is copied, to one option or two
///       x.y: {means: {word: {group.key: value}}}  a word means these settings
///            noted: {word: what}                  of which this is noted
///       x.y: {operators: fused}                   a list of words of `operators`; "a, b" is also a list
///       x.y: {ignored: why}                       can be dropped without changing results; it is noted
///     operators: {word: {fused: {group.key: value}, nofused: {...}}}   any other setting overrides these
///     defaults: [{set: {group.key: value}, unless: [group.key]}]       their defaults, where ours differ
///               if: {group.key: value}          only if these are so
///               if_given: [group.key]           only if the file says one of these
///     assumed: [{set | copy: {group.key: value | group.key}, unless: [group.key], why: ...}]   noted when used
///     nulls: say nothing                null means that a key is not given, also for keys that are kept
///     overruled: {group.key: [group.other]}       if the first is true, the others are dropped, which is noted
///
/// Our groups may be beside theirs, in the file, in a base or by --set: the higher layer wins, and two different values
/// of one layer are a problem. Where an option takes numbers, they may be spelled as in Python, 183_105. Other problems
/// are a path that is not in the table, with the closest name, a word without a counterpart, and an operator in both
/// lists.
options::Value read_nested(const options::Value& tree, const options::Mappings& mappings, const options::Facts& facts,
                           options::Report& report);

/// Converts the flat recipe of MindSpeed-Core-MS, whose groups and keys are ours but some words and defaults are not,
/// by mappings/recipes/core_ms_flat.yaml.
options::Value read_core_ms(const options::Value& tree, const options::Mappings& mappings, const options::Facts& facts,
                            options::Report& report);
/// The value that shows that a flat recipe is one of MindSpeed-Core-MS, "optimizer_config.optimizer_type SpeedAdamW";
/// empty if there is none.
std::string mark_of_core_ms(const options::Value& tree, const options::Mappings& mappings);

}  // namespace tessera::flags

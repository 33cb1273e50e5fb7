"""Train a DFlash drafter for a target language model.

Which module says what, in the order in which the method is told.

The target
    Loading it, the states of its tapped layers, what surrounds them, and what each token sees:
    `target`, `target_loading`, `target_shape`, `target_ends`, `target_mask`, `frozen_target`,
    `layer_ids`.
The drafter
    Its parameters and forward pass, the token that stands for what is to be predicted, and layers
    that begin as copies of the target's: `drafter`, `drafter_config`, `mask_token`, `warm_start`.
Blocks and anchors
    Where blocks start, and what they are given and must predict: `anchors`.
The mask
    Which keys a draft token sees, as a rule, as tiles, and as attention: `visibility`,
    `block_mask`, `attention`.
The loss
    How much a slot counts, what it is compared with, and both over a micro-batch: `slot_weights`,
    `loss`, `objective`.
Data
    Rows, conversations, the chat template, batches, rows of several conversations, and the order
    of the steps: `data_rows`, `conversations`, `rendering`, `data`, `batches`, `packing`,
    `windows`, `features`.
Data that the target writes
    Questions, answers, and what is of no use: `prompts`, `self_prompts`, `regenerate`, `dialogue`,
    `replies`, `looping`, `near_duplicates`, `journal`, `pace`, `writing_target`.
Optimisation
    `optimizer`, `schedule`, `course`, `plan`, `loop`, `ledger`, `epoch_work`, `rng`.
Compilation
    Warm-up, what was compiled since, proof that attention is fused, and layouts that are refused:
    `warmup`, `compile_watch`, `fused_proof`, `layout`.
Checkpoints and resume
    `checkpoint`, `checkpoint_files`, `checkpoint_store`, `snapshot`, `saver`, `best`, `contract`,
    `resume`, `durable`.
Decoding
    One pass of the target over several texts, proposals as chain or tree, and what is accepted:
    `slot_cache`, `reader`, `sampling`, `draft_tree`, `drafting`, `decode`, `acceptance`,
    `divergence`.
Self-tests
    `selftest`, `selftest_drafting`, `selftest_packing`.
A run
    Its settings, its phases, and what ends it: `config`, `settings`, `overrides`, `fields`,
    `data_section`, `target_section`, `train_section`, `checkpoint_section`, `run`, `run_folder`,
    `inputs`, `session`, `training`, `baseline`, `held_out`, `loop_evaluation`, `measure`,
    `signals`, `failure`, `exit_codes`, `summary`.
What a run will take
    `sizes`, `flops`, `forecast`, `forecast_text`, `machine`, `gauge`.
What a person watches
    `progress`, `live`, `metrics`, `sinks`, `curves`, `report`.
What was trained
    Measured, used and exported: `reference`, `trained`, `questions`, `evaluation`,
    `evaluation_output`, `evaluation_text`, `generation`, `export`, `speculators_layout`.
"""

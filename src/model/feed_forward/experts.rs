//! A mixture of experts: a router chooses some MLPs for each token, and another one may compute all tokens.
//!
//! Every rank chooses by itself, from the same numbers. It computes a share of the width of every expert, or some experts whole. In the latter case, a
//! token's slots are computed where their experts are: ranks exchange the rows of slots, or each adds its own ones to its share of a sum.

use super::mlp::{Mlp, MlpScratch, back_projection, projections_into};
use crate::linear::{Inputs, Linear, Projection};
use crate::names::{ExpertNames, GateUpNames, MlpNames};
use crate::norm::Norm;
use crate::products::Work;
use crate::shard::{Back, Sharding};
use crate::spec::{self, Bias, Correction, DecoderSpec, ExpertScales, FeedForward, MlpForm, SharedGate};
use crate::stream::SublayerOutput;
use crate::weights::Weights;
use base::error::Result;
use compute::explain::After;
use compute::ops;
use compute::{
    Activated, Backend, ExpertForm, ExpertRows, HostExpertWeights, HostMatrix, HostVector, LayerInput, Part, Router,
    RouterVectors, SharedExpert, Tensor,
};
use std::ops::Range;

/// The mixture of one layer.
pub struct Experts<B: Backend> {
    kind: Kind,
    router: Linear<B>,
    latent: Option<Latent<B>>,
    /// Of what the router reads, if that is the stream.
    router_norm: Option<Norm<B>>,
    /// What is added to scores where experts are chosen. `[experts]`
    correction: Option<B::Vector>,
    /// Factors of weights. `[experts]`
    scales: Option<B::Vector>,
    mlps: Mlps<B>,
    shared: Option<Shared<B>>,
    /// How often each expert was chosen, where that is counted.
    counts: Option<B::ExpertCounts>,
}

/// The projections around experts that read a latent.
struct Latent<B: Backend> {
    /// To the latent.
    down: Linear<B>,
    /// Back into the stream.
    up: Linear<B>,
}

/// The MLPs of experts.
enum Mlps<B: Backend> {
    OnDevice {
        /// Those whose rows this rank adds up: all where the rows of others are brought together first.
        added: Range<usize>,
        /// Gates, if there are any, and ups. `[projections * width, inputs]` of each, where `inputs` is the width of the stream or of the latent
        gate_up: B::Experts,
        /// `[experts, projections * width]`
        gate_up_bias: Option<B::Vector>,
        form: ExpertForm,
        /// `[inputs, width]` of each
        down: B::Experts,
        /// `[experts, inputs]`
        down_bias: Option<B::Vector>,
    },
    OnHost(B::HostExperts),
}

/// The expert that computes all tokens.
struct Shared<B: Backend> {
    mlp: Mlp<B>,
    gate: Option<Linear<B>>,
}

/// What layers have in common that share scratch.
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    router: Router,
    /// Of an expert on all ranks.
    width: usize,
    /// Into each of them.
    projections: usize,
    /// Of the latent that they read.
    latent: Option<usize>,
    has_shared: bool,
    has_norm: bool,
}

impl Kind {
    /// Whether the device computes the experts of a layer of this kind.
    fn is_on_device(self, spec: &DecoderSpec, sharding: &Sharding) -> bool {
        spec.expert_layers().any(|(layer, experts)| layer < sharding.host_experts_from && Kind::of(experts) == self)
    }
}

/// What a mixture writes on its way, shared by all layers of one kind. One per kind, in the order in which layers first have them.
pub struct ExpertsScratch<B: Backend>(Vec<KindScratch<B>>);

struct KindScratch<B: Backend> {
    kind: Kind,
    /// Rows between the products for each token: none where the host computes all experts.
    slots_of_token: usize,
    routes: B::Routes,
    /// What a router reads that has a norm of its own. `[tokens, hidden]`
    normed: Option<Tensor<B::Storage>>,
    /// `[tokens, experts]`
    logits: Tensor<B::Storage>,
    /// What experts read in the place of the stream. `[tokens, latent]`
    latent: Option<Tensor<B::Storage>>,
    /// For the product that is gated, where the device stores it. `[slots, projections * width]`
    gate_up: Option<Tensor<B::Storage>>,
    /// `[slots, width]`
    gated: Tensor<B::Storage>,
    /// The same of all ranks, where the last products read it whole.
    all_gated: Option<Tensor<B::Storage>>,
    /// Columns of each rank in the rows of all. `[ranks]`
    shares: Vec<Range<usize>>,
    /// What experts add to the stream or the latent. `[slots, columns]`, or `[slots, inputs]` where ranks have whole experts
    rows: Tensor<B::Storage>,
    /// The same of the experts of all ranks, where ranks exchange it.
    joined: Option<Joined<B>>,
    /// Of the expert that computes all tokens. `[tokens, columns]`
    shared: Option<Tensor<B::Storage>>,
    /// `[tokens, 1]`
    gates: Option<Tensor<B::Storage>>,
    /// All together. `[tokens, columns]`
    sum: Tensor<B::Storage>,
    /// The same of all ranks, where the projection back reads it whole. `[tokens, latent]`
    all_sums: Option<Tensor<B::Storage>>,
    /// Columns of each rank in it. `[ranks]`
    sum_shares: Vec<Range<usize>>,
}

/// The rows of the experts of all ranks.
struct Joined<B: Backend> {
    /// `[slots, columns]`
    rows: Tensor<B::Storage>,
    /// Columns that each rank gets. `[ranks]`
    columns: Vec<Range<usize>>,
    /// Experts of each rank. `[ranks]`
    experts: Vec<Range<usize>>,
}

impl Kind {
    fn of(spec: &spec::Experts) -> Kind {
        let (has_shared, has_norm) = (spec.shared.is_some(), spec.logits.norm.is_some());
        let spec::Mlp { width, form, .. } = spec.expert;
        let latent = spec.latent.map(|latent| latent.width);
        Kind { router: spec.router, width, projections: form.projections(), latent, has_shared, has_norm }
    }
}

impl<B: Backend> ExpertsScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, tokens: usize) -> Result<ExpertsScratch<B>> {
        let mut kinds: Vec<Kind> = Vec::new();
        for kind in spec.feed_forwards().filter_map(FeedForward::experts).map(Kind::of) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let scratch = kinds.into_iter().map(|kind| {
            let slots_of_token = if kind.is_on_device(spec, sharding) { kind.router.chosen } else { 0 };
            KindScratch::new(backend, (kind, slots_of_token), sharding, [tokens, spec.hidden])
        });
        scratch.collect::<Result<_>>().map(ExpertsScratch)
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.0.iter_mut().for_each(|scratch| scratch.set_rows(tokens));
    }

    fn of(&mut self, kind: Kind) -> &mut KindScratch<B> {
        self.0.iter_mut().find(|scratch| scratch.kind == kind).expect("a layer of the spec")
    }
}

impl<B: Backend> KindScratch<B> {
    fn new(
        backend: &B,
        (kind, slots_of_token): (Kind, usize),
        sharding: &Sharding,
        [tokens, hidden]: [usize; 2],
    ) -> Result<KindScratch<B>> {
        let Kind { router, width, projections, latent, has_shared, has_norm } = kind;
        let inputs = latent.unwrap_or(hidden);
        let columns = sharding.expert_columns(inputs).len();
        let (own, slots) = (sharding.own_expert_width(width).len(), tokens * slots_of_token);
        let (is_joined, is_whole) = (sharding.gathers(), sharding.has_whole_experts());
        let joined = || -> Result<Joined<B>> {
            let experts = sharding.whole_experts(router.experts);
            Ok(Joined { rows: backend.tensor(slots, columns)?, columns: sharding.width(inputs), experts })
        };
        let shared = |cols| has_shared.then(|| backend.tensor(tokens, cols)).transpose();
        Ok(KindScratch {
            kind,
            slots_of_token,
            routes: backend.routes(&router, tokens)?,
            normed: has_norm.then(|| backend.tensor(tokens, hidden)).transpose()?,
            logits: backend.tensor(tokens, router.experts)?,
            latent: latent.map(|latent| backend.tensor(tokens, latent)).transpose()?,
            gate_up: (B::STORES_GATES || projections == 1)
                .then(|| backend.tensor(slots, projections * own))
                .transpose()?,
            gated: backend.tensor(slots, own)?,
            all_gated: (is_joined && !is_whole).then(|| backend.tensor(slots, width)).transpose()?,
            shares: sharding.width(width),
            rows: backend.tensor(slots, if is_whole { inputs } else { columns })?,
            joined: (is_joined && is_whole).then(joined).transpose()?,
            shared: shared(columns)?,
            gates: shared(1)?,
            sum: backend.tensor(tokens, columns)?,
            all_sums: latent.filter(|_| is_joined).map(|latent| backend.tensor(tokens, latent)).transpose()?,
            sum_shares: sharding.width(inputs),
        })
    }

    fn set_rows(&mut self, tokens: usize) {
        let slots = tokens * self.slots_of_token;
        let joined = self.joined.as_mut().map(|joined| &mut joined.rows);
        let of_slots = [&mut self.gated, &mut self.rows].into_iter();
        let of_slots = of_slots.chain(&mut self.gate_up).chain(&mut self.all_gated).chain(joined);
        of_slots.for_each(|tensor| tensor.set_rows(slots));
        let optional = self.normed.iter_mut().chain(&mut self.shared).chain(&mut self.gates).chain(&mut self.latent);
        let of_tokens = [&mut self.logits, &mut self.sum].into_iter().chain(optional).chain(&mut self.all_sums);
        of_tokens.for_each(|tensor| tensor.set_rows(tokens));
    }
}

impl<B: Backend> Experts<B> {
    /// The mixture of layer `layer`, whose input and output are `hidden` wide.
    pub fn load(
        backend: &B,
        spec: &spec::Experts,
        sharding: &Sharding,
        weights: &mut Weights,
        layer: usize,
        hidden: usize,
    ) -> Result<Experts<B>> {
        let (names, spec::Experts { router, expert, .. }) = (weights.names(), spec);
        let parts = &names.experts;
        let stacked = match parts.stacked_in {
            "" => parts.stacked,
            both if weights.has_stacked(&names.in_layer(layer, both)) => {
                MlpNames { gate_up: GateUpNames::Fused(both), ..parts.stacked }
            }
            _ => parts.stacked,
        };
        let (experts, width) = (router.experts, expert.width);
        let (own, held) = (sharding.own_expert_width(width), sharding.own_experts(experts));
        let read = spec.latent.map_or(hidden, |latent| latent.width);
        let Back { inputs, outputs, adds_bias } = sharding.expert_back(width, read);
        let into = |mlp: &MlpNames| projections_into(mlp, expert.form, width, &own);
        let of_layer = OfLayer { layer, experts, held: held.clone() };
        let mut gate_up = matrices(weights, &of_layer, &stacked, Inputs::all(read), into)?;
        if let GateUpNames::Alternating(_) = parts.stacked.gate_up {
            gate_up = gate_up.iter().map(|parts| parts.iter().flat_map(HostMatrix::by_turns).collect()).collect();
        }
        let back = |mlp: &MlpNames| vec![back_projection(mlp, read, &outputs)];
        let down = matrices(weights, &of_layer, &stacked, Inputs { all: width, own: inputs }, back)?;
        let [gate_up_bias, down_bias] = match expert.bias {
            Bias::None => [None, None],
            Bias::Added => {
                let gate_up = biases(weights, &of_layer, into(&stacked))?;
                let down = biases(weights, &of_layer, back(&stacked))?;
                [Some(gate_up), Some(down).filter(|_| adds_bias)]
            }
        };
        let form = match expert.form {
            MlpForm::Gated { activation, .. } => ExpertForm::Gated(activation),
            MlpForm::GatedBy(_) => unreachable!("the check refuses such experts"),
            MlpForm::Ungated(curve) => ExpertForm::Ungated(curve),
        };
        let mlps = HostExpertWeights {
            router,
            gate_up: &gate_up,
            gate_up_bias: gate_up_bias.as_deref(),
            form,
            down: &down,
            down_bias: down_bias.as_deref(),
        };
        let mlps = match layer < sharding.host_experts_from {
            true => {
                let added = if sharding.gathers() { 0..experts } else { held.clone() };
                Mlps::on_device(backend, mlps, held.start, added)?
            }
            false => Mlps::OnHost(backend.experts_on_host(mlps)?),
        };
        let correction = match spec.correction {
            Correction::None => None,
            Correction::Stored => {
                let all = 0..experts;
                let name = names.in_layer(layer, parts.correction);
                let correction = weights.parameter(&name, experts, std::slice::from_ref(&all))?;
                Some(backend.table(&correction)?)
            }
        };
        let scales = match spec.logits.expert_scales {
            ExpertScales::None => None,
            ExpertScales::Stored => {
                Some(backend.vector(&[weights.vector(&names.in_layer(layer, parts.scales), experts, 0..experts)?])?)
            }
        };
        let router_norm = spec.logits.norm.map(|eps| {
            let name = names.in_layer(layer, parts.router_norm);
            Norm::scaled(backend, weights, &name, hidden, (eps, (hidden as f32).sqrt().recip()))
        });
        let router_norm = router_norm.transpose()?;
        let latent = spec.latent.map(|spec::ExpertLatent { width, bias }| {
            let part = |name, outputs, own| [Projection { name: names.in_layer(layer, name), outputs, own: vec![own] }];
            let down = part(parts.latent.down, width, 0..width);
            // Shares of a sum are shares of what is made of it.
            let Back { inputs, outputs, adds_bias } = sharding.back(width, 0..width);
            let (up, inputs) = (part(parts.latent.up, hidden, outputs), Inputs { all: width, own: inputs });
            Ok(Latent {
                down: Linear::load(backend, weights, Inputs::all(hidden), &down, bias, true)?,
                up: Linear::load(backend, weights, inputs, &up, bias, adds_bias)?,
            })
        });
        let latent = latent.transpose()?;
        let small = |weights: &mut Weights, part, outputs, bias| {
            Linear::load_unquantized(backend, weights, &names.in_layer(layer, part), [outputs, hidden], bias)
        };
        Ok(Experts {
            kind: Kind::of(spec),
            router: small(weights, parts.router, experts, spec.logits.bias)?,
            latent,
            router_norm,
            correction,
            scales,
            mlps,
            counts: None,
            shared: match &spec.shared {
                None => None,
                Some(spec::SharedExpert { mlp, gate }) => Some(Shared {
                    mlp: Mlp::load(backend, mlp, &parts.shared, sharding, weights, [layer, hidden])?,
                    gate: match gate {
                        SharedGate::None => None,
                        SharedGate::Sigmoid => Some(small(weights, parts.shared_gate, 1, Bias::None)?),
                    },
                }),
            },
        })
    }

    /// Counts how often each expert is chosen from now on.
    pub fn count(&mut self, backend: &B) -> Result<()> {
        self.counts = Some(backend.expert_counts(self.kind.router.experts)?);
        Ok(())
    }

    /// What was counted. `None`: nothing is.
    pub fn counts(&self) -> Option<&B::ExpertCounts> {
        self.counts.as_ref()
    }

    /// Its products, in order.
    pub fn work(&self) -> Vec<Work<'_, B>> {
        let chosen = self.kind.router.chosen;
        let mut work = vec![Work::product("router", &self.router)];
        work.extend(self.latent.iter().map(|latent| Work::product("latent down", &latent.down)));
        // Those on the host are computed by the CPU.
        if let Mlps::OnDevice { gate_up, form, down, .. } = &self.mlps {
            let (name, after) = match *form {
                ExpertForm::Gated(activation) => ("experts gate_up", After::Gate(activation)),
                ExpertForm::Ungated(_) => ("experts up", After::Store),
            };
            work.push(Work::Experts { name, weight: gate_up, chosen, after });
            work.push(Work::Experts { name: "experts down", weight: down, chosen, after: After::Store });
        }
        if let Some(Shared { mlp, gate }) = &self.shared {
            work.extend([mlp.first_work(["shared gate_up", "shared up"]), Work::product("shared down", mlp.output())]);
            work.extend(gate.iter().map(|gate| Work::product("shared gate", gate)));
        }
        work.extend(self.latent.iter().map(|latent| Work::back("latent up", &latent.up)));
        work
    }

    /// What it adds to the stream, as far as this rank computes it. `x` is what experts read, and `stream` the stream itself. `[tokens, hidden]`
    pub fn forward<'a>(
        &'a self,
        backend: &mut B,
        scratch: &'a mut ExpertsScratch<B>,
        dense: &mut MlpScratch<B>,
        [x, stream]: [&Tensor<B::Storage>; 2],
        device_batch: &B::DeviceBatch,
    ) -> SublayerOutput<'a, B> {
        let scratch = scratch.of(self.kind);
        let KindScratch {
            routes,
            normed,
            logits,
            latent,
            gate_up,
            gated,
            all_gated,
            shares,
            rows,
            joined,
            shared,
            gates,
            sum,
            all_sums,
            sum_shares,
            ..
        } = scratch;
        let read = match (&self.router_norm, normed) {
            (Some(norm), Some(normed)) => {
                ops::norm(backend, normed, stream, norm.weights());
                &*normed
            }
            _ => x,
        };
        self.router.forward(backend, logits, read);
        let vectors = RouterVectors { bias: self.correction.as_ref(), scales: self.scales.as_ref() };
        ops::route(backend, routes, logits, vectors, &self.kind.router);
        if let Some(counts) = &self.counts {
            ops::count_experts(backend, counts, routes, device_batch);
        }
        let read = match (&self.latent, latent) {
            (Some(Latent { down, .. }), Some(latent)) => {
                down.forward(backend, latent, x);
                &*latent
            }
            _ => x,
        };
        if let Mlps::OnDevice { gate_up: into, gate_up_bias, form, down, down_bias, .. } = &self.mlps {
            let layer = LayerInput::new(read, into, gate_up_bias.as_ref());
            match *form {
                ExpertForm::Gated(activation) => {
                    ops::gated_expert_linear(backend, gated, gate_up.as_mut(), layer, activation, routes);
                }
                ExpertForm::Ungated(curve) => {
                    let up = gate_up.as_mut().expect("ups are stored");
                    ops::expert_linear(backend, up, layer, ExpertRows::Tokens, routes);
                    let of = Part { x: &*up, first: 0 };
                    ops::activate(backend, gated, Activated { of, scale: 1.0, curve, times: None });
                }
            }
            let gated = match all_gated {
                Some(all) => {
                    ops::join_columns(backend, all, Some(Part { x: gated, first: 0 }), shares);
                    all
                }
                None => gated,
            };
            let layer = LayerInput::new(gated, down, down_bias.as_ref());
            ops::expert_linear(backend, rows, layer, ExpertRows::Slots, routes);
            if let Some(Joined { rows: all, columns, experts }) = joined {
                ops::join_slots(backend, all, rows, columns, experts, routes);
            }
        }
        let rows = joined.as_ref().map_or(&*rows, |joined| &joined.rows);
        let of_shared = match (&self.shared, shared, gates) {
            (Some(Shared { mlp, gate }), Some(shared), Some(gates)) => {
                let gated = mlp.forward(backend, dense, x);
                mlp.output().forward(backend, shared, gated);
                gate.iter().for_each(|gate| gate.forward(backend, gates, x));
                Some(SharedExpert { x: shared, gate: gate.is_some().then_some(&*gates) })
            }
            _ => None,
        };
        match &self.mlps {
            Mlps::OnDevice { added, .. } => ops::combine(backend, sum, rows, of_shared, routes, added.clone()),
            Mlps::OnHost(experts) => ops::host_experts(backend, sum, read, experts, of_shared, routes, device_batch),
        }
        let Some(Latent { up, .. }) = &self.latent else { return SublayerOutput::Delta(sum) };
        let x = match all_sums {
            Some(all) => {
                ops::join_columns(backend, all, Some(Part { x: sum, first: 0 }), sum_shares);
                &*all
            }
            None => &*sum,
        };
        SublayerOutput::Product { layer: up, x }
    }
}

impl<B: Backend> Mlps<B> {
    /// `weights` are those of experts from `first` on.
    fn on_device(backend: &B, weights: HostExpertWeights, first: usize, added: Range<usize>) -> Result<Mlps<B>> {
        let HostExpertWeights { gate_up, gate_up_bias, form, down, down_bias, .. } = weights;
        let vector = |numbers: Option<&[f32]>| numbers.map(|numbers| backend.table(numbers)).transpose();
        Ok(Mlps::OnDevice {
            added,
            gate_up_bias: vector(gate_up_bias)?,
            gate_up: backend.experts(first, gate_up)?,
            form,
            down_bias: vector(down_bias)?,
            down: backend.experts(first, down)?,
        })
    }
}

/// The experts of a layer, and those that are held.
struct OfLayer {
    layer: usize,
    experts: usize,
    held: Range<usize>,
}

/// The parts of each held expert's matrix that `projections` names, from the tensors of all experts where the file has these, else from those of each.
fn matrices(
    weights: &mut Weights,
    &OfLayer { layer, experts, ref held }: &OfLayer,
    stacked: &MlpNames,
    inputs: Inputs,
    projections: impl Fn(&MlpNames) -> Vec<Projection>,
) -> Result<Vec<Vec<HostMatrix>>> {
    let names = weights.names();
    let ExpertNames { each, before, .. } = &names.experts;
    let of_all =
        projections(stacked).into_iter().map(|part| Projection { name: names.in_layer(layer, &part.name), ..part });
    let of_all: Vec<Projection> = of_all.collect();
    if before.is_empty() || of_all.iter().all(|part| weights.has_stacked(&part.name)) {
        let mut matrices = vec![Vec::new(); held.len()];
        for Projection { name, outputs, own } in of_all {
            let shape = [experts, outputs, inputs.all];
            let parts = weights.stacked_parts(&name, shape, held.clone(), &own, inputs.own.clone())?;
            matrices.iter_mut().zip(parts).for_each(|(matrix, parts)| matrix.extend(parts));
        }
        return Ok(matrices);
    }
    let of_expert = |expert: usize| {
        let mut matrix = Vec::new();
        for Projection { name, outputs, own } in projections(each) {
            let name = names.in_layer(layer, &format!("{before}{expert}.{name}"));
            // Those of other ranks are there, and nothing of them is kept.
            let own = if held.contains(&expert) { &own[..] } else { &[] };
            matrix.extend(weights.matrix_parts(&name, (outputs, inputs.all), own, inputs.own.clone())?);
        }
        Ok(matrix)
    };
    let mut matrices: Vec<_> = (0..experts).map(of_expert).collect::<Result<_>>()?;
    Ok(matrices.drain(held.clone()).collect())
}

/// The biases of the held experts of a layer, in the order of their matrices.
fn biases(
    weights: &mut Weights,
    &OfLayer { layer, experts, ref held }: &OfLayer,
    projections: Vec<Projection>,
) -> Result<Vec<f32>> {
    let names = weights.names();
    let alternate =
        matches!(names.experts.stacked.gate_up, GateUpNames::Alternating(both) if projections[0].name == both);
    let mut of_experts = vec![Vec::new(); experts];
    for Projection { name, outputs, own } in projections {
        let parts = weights.stacked_biases(&names.in_layer(layer, &name), [experts, outputs], &own)?;
        for (biases, parts) in of_experts.iter_mut().zip(parts.chunks(own.len())) {
            for part in parts.iter().map(HostVector::to_f32) {
                match alternate {
                    false => biases.extend(part),
                    true => [0, 1].into_iter().for_each(|first| biases.extend(part.iter().skip(first).step_by(2))),
                }
            }
        }
    }
    Ok(of_experts[held.clone()].concat())
}

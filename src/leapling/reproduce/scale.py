"""How much of everything: the two sizes of the experiments."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Scale:
    """`name` is also the preset of the recipes; chains and draws measure one kernel, started from exact draws."""

    name: str
    seeds: tuple[int, ...]
    few_seeds: tuple[int, ...]  # where there are many variants to train
    num_chains: int
    num_draws: int
    tuning_chains: int
    tuning_gradients: tuple[int, ...]  # of each chain of each setting, round by round
    burn_in_chains: int
    adversarial_share: float  # of the iterations of A-NICE-MC's recipe

    def shifted(self, by: int) -> "Scale":
        """The same with other seeds."""
        seeds, few = (tuple(seed + by for seed in seeds) for seeds in (self.seeds, self.few_seeds))
        return replace(self, seeds=seeds, few_seeds=few)


SCALES = {
    "quick": Scale("quick", (0,), (0,), 100, 500, 24, (500, 2000), 500, 0.2),
    # 200 x 2,000 is the protocol that defines `ess_paper`.
    "paper": Scale("paper", (0, 1, 2, 3, 4), (0, 1, 2), 200, 2000, 50, (2000, 8000, 32000), 2000, 1.0),
}

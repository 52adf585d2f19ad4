"""Made-up passengers, for machines that have no Titanic data: the same columns, gaps and rough proportions.

Nobody of them existed. Who survives is drawn from odds by sex, class, age and family, as in the real table but clearer:
there is the same kind of thing to learn, and nothing to be learned about the ship.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

TRAIN_ROWS, TEST_ROWS = 891, 418
_SEED = 1912
_SURNAMES = (
    *("Abel", "Baker", "Carter", "Dixon", "Elliot", "Foster", "Gray", "Hughes"),
    *("Ives", "Jansen", "Keller", "Larsen", "Moreau", "Novak", "Olsen"),
)
# By class, from the first.
_SHARE = (0.24, 0.21, 0.55)
_WOMEN = (0.43, 0.41, 0.29)
_AGE = (38.0, 30.0, 25.0)
_LOG_FARE = (4.1, 2.9, 2.3)
_LOG_ODDS_WOMEN = (3.4, 2.6, -0.9)
_LOG_ODDS_MEN = (-0.9, -2.3, -2.4)
_LOG_ODDS_BOYS = (3.0, 3.0, 1.2)


def make_passengers() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return tables for training and testing, the same ones each time; the second lacks ``Survived``."""
    import pandas as pd

    random, count = np.random.default_rng(_SEED), TRAIN_ROWS + TEST_ROWS
    level = random.choice(3, count, p=_SHARE)
    female = random.random(count) < np.take(_WOMEN, level)
    age = np.clip(random.normal(np.take(_AGE, level), 14.0), 0.5, 80.0).round()
    title = _titles(random, age, female=female)
    siblings, parents = _relatives(random, age)
    frame = pd.DataFrame(
        {
            "PassengerId": np.arange(1, count + 1),
            "Survived": _survived(random, level, title, siblings + parents),
            "Pclass": level + 1,
            "Name": [f"{random.choice(_SURNAMES)}, {one}. {chr(65 + place % 26)}." for place, one in enumerate(title)],
            "Sex": np.where(female, "female", "male"),
            "Age": np.where(random.random(count) < 0.2, np.nan, age),
            "SibSp": siblings,
            "Parch": parents,
            "Ticket": random.integers(1000, 400_000, count).astype(str),
            "Fare": np.exp(random.normal(np.take(_LOG_FARE, level), 0.5)).round(4),
            "Cabin": _cabins(random, level),
            "Embarked": random.choice(["S", "C", "Q"], count, p=(0.72, 0.19, 0.09)),
        }
    )
    return frame[:TRAIN_ROWS], frame[TRAIN_ROWS:].drop(columns="Survived").reset_index(drop=True)


def _titles(random: np.random.Generator, age: np.ndarray, *, female: np.ndarray) -> np.ndarray:
    married = (age > 20) & (random.random(len(age)) < 0.6)
    men = np.where(age < 14, "Master", np.where(random.random(len(age)) < 0.03, "Dr", "Mr"))
    return np.where(female, np.where(married, "Mrs", "Miss"), men)


def _relatives(random: np.random.Generator, age: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    young = age < 16
    return random.poisson(np.where(young, 1.6, 0.4)), random.poisson(np.where(young, 1.2, 0.25))


def _survived(random: np.random.Generator, level: np.ndarray, title: np.ndarray, family: np.ndarray) -> np.ndarray:
    women, boys = np.isin(title, ["Mrs", "Miss"]), title == "Master"
    odds = np.where(women, np.take(_LOG_ODDS_WOMEN, level), np.take(_LOG_ODDS_MEN, level))
    odds = np.where(boys, np.take(_LOG_ODDS_BOYS, level), odds) - 1.5 * (family > 3)
    survived: np.ndarray = random.random(len(level)) < 1 / (1 + np.exp(-odds))
    return survived.astype(int)


def _cabins(random: np.random.Generator, level: np.ndarray) -> list[str | None]:
    known = random.random(len(level)) < np.take((0.8, 0.1, 0.02), level)
    decks = np.array(["C", "E", "F"])[level]
    return [
        f"{deck}{number}" if there else None
        for deck, number, there in zip(decks, random.integers(1, 130, len(level)), known, strict=True)
    ]

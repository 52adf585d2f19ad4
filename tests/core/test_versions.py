"""Which versions of packages go together."""

import pytest

from tfos_lab.core.package_versions import differing, misfits


def test_the_numbers_that_count_have_to_agree():
    mine = {"tensorflow": "2.21.0", "numpy": "2.4.0", "keras": "3.15.1"}
    assert differing({"tensorflow": "2.21.3", "numpy": "2.1.0"}, mine) == []
    assert differing({"tensorflow": "2.20.0", "numpy": "1.26.4"}, mine) == [
        "its tensorflow is 2.20.0, and this is 2.21.0",
        "its numpy is 1.26.4, and this is 2.4.0",
    ]


@pytest.mark.parametrize(
    ("versions", "sentences"),
    [
        ({"pyspark": "3.5.0", "tensorflow": "2.18.1", "keras": "3.10.0", "python": "3.11.7"}, []),
        ({"pyspark": "5.0.0", "tensorflow": "2.30.0", "keras": "4.0.0", "python": "3.15.0"}, []),
        ({"keras": "3.8.0"}, ["keras 3.8.0 is too old for tfos_lab: pip install 'keras>=3.10,<3.16'"]),
        (
            {"numpy": "1.26.4", "pyarrow": "26.0.1"},
            ["pyarrow 26.0.1 needs NumPy 2, and NumPy 1.26.4 is installed: pip install 'pyarrow<26', or 'numpy>=2'"],
        ),
        ({"numpy": "1.26.4", "pyarrow": "25.0.1"}, []),
        (
            {"pyspark": "3.5.9", "python": "3.12.1"},
            ["pyspark 3.5.9 needs distutils, which Python 3.12.1 lacks: pip install setuptools, which brings it"],
        ),
        ({"pyspark": "3.5.9", "python": "3.12.1", "setuptools": "80.0.0"}, []),
        (None, []),  # what is installed here
    ],
)
def test_what_cannot_work_is_named_with_what_to_install(versions, sentences):
    assert misfits(versions) == sentences

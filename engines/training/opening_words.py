"""Words that fill the blanks of openings: one list a blank."""

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


WORDS: dict[str, tuple[str, ...]] = {
    "name": _split(
        "Maria, Tom, Aisha, Ben, Chloe, David, Elena, Frank, Grace, Hassan, Isabel, Jack, Karen, "
        "Liam, Mei, Noah, Olivia, Peter, Quinn, Rosa, Sam, Tara, Umar, Victor, Wendy, Yusuf, Zoe, "
        "Anna, Carlos, Dina, Ethan, Fatima, George, Hannah, Ivan, Julia, Kevin, Lucy, Marcus, Nina"
    ),
    "thing": _split(
        "apples, books, marbles, stickers, cookies, pencils, eggs, shirts, tickets, toys, oranges, "
        "balloons, cupcakes, stamps, bottles of water, flowers, coins, notebooks, pizzas, candles, "
        "muffins, baskets of berries, bags of rice, video games, puzzles, chairs, lamps, trees"
    ),
    "place": _split(
        "school, bakery, farm, shop, library, factory, restaurant, garden, cinema, gym, bookstore, "
        "zoo, hospital, market, museum, office, toy store, swimming pool, warehouse, campsite"
    ),
    "job": _split(
        "teacher, farmer, baker, driver, carpenter, nurse, gardener, painter, cook, plumber, "
        "salesperson, tailor, cyclist, runner, student, waiter, builder, mechanic"
    ),
    "topic": _split(
        "photosynthesis, gravity, inflation, machine learning, the French Revolution, black holes, "
        "climate change, DNA, supply and demand, the water cycle, electric cars, vaccines, "
        "renewable energy, the Roman Empire, quantum computing, the human heart, stress, sleep, "
        "social media, remote work, healthy eating, the stock market, volcanoes, plate tectonics, "
        "evolution, the immune system, the industrial revolution, democracy, free trade, ethics, "
        "artificial intelligence, blockchain, chess, jazz, the solar system, magnetism, batteries, "
        "ocean currents, bees, recycling, public transport, urban planning, poetry, Shakespeare, "
        "the Silk Road, ancient Egypt, the Cold War, human rights, globalisation, the printing "
        "press, antibiotics, proteins, chemical bonds, acids and bases, thermodynamics, friction, "
        "probability, statistics, prime numbers, calculus, databases, operating systems, "
        "compilers, encryption, the internet, cloud computing, testing software, version control, "
        "gardening, cooking pasta, baking bread, running a marathon, yoga, meditation, travelling "
        "alone, learning a language, saving money, time management, public speaking, leadership, "
        "teamwork, job interviews, writing a CV, raising children, keeping a cat, training a dog"
    ),
    "form": _split(
        "short story, poem, blog post, email, speech, letter, product description, news article, "
        "review, dialogue, essay, limerick, song, summary, script for a short film, diary entry, "
        "press release, social media post, travel guide, cover letter, recipe, fairy tale"
    ),
    "person": _split(
        "an astronaut, a detective, a medieval knight, a chef, a doctor, a pirate, a teacher, "
        "a time traveller, a lawyer, a football coach, a scientist, a travel agent, a poet, "
        "a financial adviser, a historian, a robot, a wizard, a journalist, a psychologist, "
        "a personal trainer, an old fisherman, a museum guide, a judge, a software engineer"
    ),
    "place_name": _split(
        "Paris, Japan, Kenya, New York, the Amazon, Iceland, Rome, India, London, Brazil, Morocco, "
        "Norway, Mexico, Vietnam, Egypt, Canada, Greece, Australia, Peru, South Korea"
    ),
    "verb": _split(
        "count, find, get, compute, remove, merge, sort, filter, check, convert, split, sum, "
        "reverse, is, has, make, max, min, parse, validate, replace, group, encode, decode, "
        "rotate, flatten, select, search, compare, format"
    ),
    "noun": _split(
        "words, vowels, primes, digits, duplicates, elements, pairs, string, numbers, list, "
        "palindrome, matrix, brackets, characters, average, factors, sequence, intervals, "
        "substring, prefix, median, square, even_numbers, odd_sum, dates, tree, path, subsets, "
        "unique_values, frequency, distance, triangle, anagrams, fibonacci, neighbors, roots"
    ),
    "args": (
        "numbers: List[int]",
        "text: str",
        "n: int",
        "s: str",
        "a: int, b: int",
        "lst",
        "words: List[str]",
        "x",
        "nums",
        "arr, k",
        "string: str, sub: str",
        "values: List[float]",
        "n",
        "matrix: List[List[int]]",
        "s1, s2",
        "d: Dict[str, int]",
        "a, b, c",
        "items: List[str], prefix: str",
    ),
    "result": ("int", "str", "bool", "List[int]", "List[str]", "float", "Tuple[int, int]"),
    "docstring": (
        "",
        "Return ",
        "Given a list of integers, ",
        "Given a string, ",
        "You are given ",
        "Write a function that takes ",
        "Check if ",
        "For a given ",
        "Create a function which ",
        "This function takes ",
        "Find the ",
        "Count the number of ",
        "Implement a function that ",
        "From a list of ",
        "Returns True if ",
    ),
    "sentence": (
        "Return the sum of all the even values.",
        "Return the largest value, or None when there is none.",
        "Count how often each element occurs and return the most common one.",
        "Given a list of integers, return a new list without the negative ones.",
        "Remove every second element and return what is left.",
        "Return True if the two inputs have the same elements, False otherwise.",
        "Return the words in the order of their length.",
        "Find the first position at which the two inputs differ.",
        "Given a string, return it with the vowels in upper case.",
        "Return the number of days between the two dates.",
        "Compute the product of the digits of the given number.",
        "Split the text at commas and strip the spaces from each part.",
        "Return the n-th element of the sequence.",
        "Check whether all brackets are closed in the right order.",
        "Given two lists, return the elements that are in exactly one of them.",
        "Return the distance between the closest two values.",
        "Return the values that are greater than the average.",
        "Convert the number to its representation in base 2.",
        "Return the longest run of equal elements.",
        "Return a dictionary from each letter to the number of its occurrences.",
    ),
    "topic_code": (
        "a binary search",
        "a stack",
        "a linked list",
        "quicksort",
        "a queue using two stacks",
        "a binary tree",
        "recursion",
        "dynamic programming",
        "a hash table",
        "breadth-first search",
        "a web server",
        "a calculator",
        "decorators",
        "generators",
        "a rate limiter",
        "a cache",
    ),
    "language": _split("Python, JavaScript, Java, C++, SQL, Go, Rust, HTML, a shell script"),
    "n": tuple(map(str, range(2, 31))),
    "m": tuple(map(str, (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 25, 30, 36, 40, 50, 60, 75, 100))),
    "price": tuple(map(str, (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 1.5, 2.5))),
    "big": tuple(map(str, range(60, 1000, 20))),
    "days": tuple(map(str, range(2, 8))),
    "weeks": tuple(map(str, range(2, 7))),
    "times": tuple(map(str, range(2, 6))),
    "pct": tuple(map(str, range(5, 80, 5))),
    "fraction": _split("half, a third, a quarter, twice, three times, 20%, 25%, 40%, two thirds"),
}

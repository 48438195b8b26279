"""Lists that training prompts are made of, written for this project."""

from __future__ import annotations


def _items(text: str) -> list[str]:
    return [" ".join(item.split()) for item in text.split("|")]


TOPICS = _items("""
the water cycle| black holes| how vaccines work| learning to play the guitar| growing tomatoes| the French
Revolution| sleep| how to save money| healthy breakfasts| dealing with stress| the Great Wall of China| electric
cars| remote work| a job interview| public speaking| photosynthesis| the stock market| climate change| renewable
energy| learning a new language| time management| meditation| running a marathon| a trip to Japan| a weekend in
Paris| camping with children| adopting a dog| cats and dogs| honey bees| the human heart| the immune system|
earthquakes| volcanoes| the moon| the planet Mars| gravity| how computers store data| machine learning| the
internet| online privacy| passwords| social media| video games| board games| chess| football| swimming| yoga|
baking bread| making coffee| a vegetarian dinner| pasta sauce| cheese| chocolate| tea| a birthday party| a
wedding speech| an apology to a friend| a letter to the landlord| a complaint about a late delivery| a thank-you
note to a teacher| asking for a raise| resigning from a job| a product launch| a small bakery| a bookshop| a
mobile app for walkers| team work| leadership| conflict with a colleague| customer service| marketing a new
drink| the Roman Empire| ancient Egypt| the Second World War| the printing press| the industrial revolution| the
Silk Road| Leonardo da Vinci| Marie Curie| Albert Einstein| William Shakespeare| jazz| classical music| painting
with watercolours| photography| poetry| detective novels| science fiction| fairy tales| the ocean| rain forests|
deserts| rivers| mountains| snow| dinosaurs| whales| elephants| birds that migrate| trees in autumn| recycling|
plastic waste| clean water| public transport| bicycles| trains| aeroplanes| bridges| how a refrigerator works|
how a camera works| batteries| light bulbs| magnets| sound| colour| time zones| the calendar| democracy| taxes|
inflation| supply and demand| insurance| buying a house| moving to a new city| first aid| headaches| vitamins|
drinking enough water| good posture| teaching children to read| homework| studying for exams| writing an essay|
taking notes| critical thinking| happiness| friendship| kindness| courage| honesty| a lost key| a talking fox| a
robot who learns to paint| a lighthouse keeper| a village in the snow| a stolen painting| two sisters| an old
clock
""")

CHAT = [
    "What is important to know about {}?",
    "Write a short story about {}.",
    "Explain {} in simple terms.",
    "Give me five tips about {}.",
    "Write an email about {}.",
    "What are the advantages and disadvantages of {}?",
    "Write a poem about {}.",
    "Write a blog post about {} with an introduction, three points and a conclusion.",
    "I would like to learn more about {}. Where should I begin?",
    "Imagine you are an expert on {}. What would you tell a beginner?",
    "List ten interesting facts about {}.",
    "Compare {} with something similar, and describe three differences.",
    "Write a dialogue between two people who talk about {}.",
    "Describe {} in one paragraph.",
    "What are common misunderstandings about {}?",
    "Make a plan for a week that has to do with {}.",
    "Hi! Can you help me with {}?",
    "Why do people care about {}?",
    "Give an outline of a talk about {}.",
    "How would you explain {} to a ten-year-old?",
    "What questions should I ask about {}?",
    "Write a product description that has to do with {}.",
    "What is the history of {}?",
    "Pretend to be a reporter and write a news article about {}.",
]

TASKS = _items("""
reverses a string| checks whether a word is a palindrome| finds the largest number in a list| counts the vowels
in a text| sorts a list of tuples by the second element| removes duplicates from a list| computes the factorial
of a number| returns the n-th Fibonacci number| checks whether a number is prime| lists all primes below n|
merges two sorted lists| finds the common elements of two lists| counts how often each word occurs in a text|
flattens a nested list| transposes a matrix| multiplies two matrices| computes the greatest common divisor|
converts Celsius to Fahrenheit| converts a decimal number to binary| converts Roman numerals to integers|
validates an email address| searches a sorted list by bisection| sorts a list with quicksort| sorts a list with
bubble sort| implements a stack| implements a queue with two stacks| implements a linked list| traverses a
binary tree in order| finds the depth of a tree| finds the shortest path in a graph| checks balanced
parentheses| generates all permutations of a list| generates all subsets of a set| computes the mean and median
of a list| computes the standard deviation| reads a CSV file and sums a column| writes a dictionary to a JSON
file| counts the lines of a file| finds the longest word in a sentence| finds the second largest number| rotates
a list by k places| splits a list into chunks| checks whether two words are anagrams| computes the sum of
digits| checks whether a year is a leap year| counts the days between two dates| simulates throwing dice| plays
rock, paper, scissors| guesses a number between 1 and 100| draws a triangle of stars| prints the multiplication
table| computes compound interest| encrypts a text with a Caesar cipher| finds the missing number in a list from
1 to n| groups words by their first letter| removes punctuation from a text| capitalises every word| computes
the distance between two points| computes the area of a triangle| solves a quadratic equation| checks whether a
number is a perfect square| finds all divisors of a number| models a bank account with a class| models a library
of books with classes| caches the results of another function| measures the time of another function| retries a
function that fails| filters even numbers and squares them| finds pairs that add up to a target
""")

CODE = [
    "Write a Python function that {}.",
    "Write a JavaScript function that {}.",
    "Write Python code that {}, and explain it step by step.",
    "Write a Python function that {}. Add type hints, a docstring and examples.",
    "Write a Python program that {}, and test it with assertions.",
    "How do I write a function that {} in Python?",
    "Write a C++ program that {}.",
    "Show two ways to write a Python function that {}.",
    "Write a Java method that {}.",
    "Please give me only the code, no explanation: a Python function that {}.",
]

EXPLAIN = [
    "Explain what this Python code does:\n\n```python\n{}\n```",
    "Add comments to this Python code:\n\n```python\n{}\n```",
    "Complete this Python code:\n\n{}",
    "Find possible mistakes in this Python code:\n\n```python\n{}\n```",
]

SUMS = [
    "What is {0} + {1} * {2}?",
    "What is {4} divided by {0}?",
    "Solve for x: {0}x + {1} = {4}",
    "What is {0}% of {4}?",
    "A train travels {0} km in {1} minutes. How far does it travel in {2} hours?",
    "The sides of a rectangle are {0} cm and {1} cm. What are its area and its perimeter?",
    "Anna has {0} apples and buys {1} more. She gives {2} of them to Tom. How many apples does Anna have left?",
    "A shop sells pens at ${0} each. How much do {1} pens cost with a discount of {2}%? Think step by step.",
    "Find the mean of {0}, {1}, {2} and {3}.",
    "If {0} workers need {1} days to build a wall, how many days do {2} workers need?",
    "Simplify the expression {0}(x + {1}) - {2}x.",
    "Solve the equation x^2 - {0}x + {1} = 0 and explain every step.",
    "A bag holds {0} red and {1} blue balls. What is the probability of drawing a red one?",
    "Tom is {0} years old. His sister is {1} years younger than twice his age. How old will she be in {2} years?",
    "Convert {4} minutes to hours and minutes.",
    "A tank holds {4} litres and loses {0} litres an hour. After how many hours is it empty?",
]

CORRECTION = [
    "Correct the spelling and grammar of this text:\n\n{}",
    "Please correct the mistakes in the following text and change nothing else:\n\n{}",
    "Proofread this text and write it again without errors:\n\n{}",
    "Fix the typos in this text:\n\n{}",
    "Rewrite this text with correct spelling, grammar and punctuation:\n\n{}",
]

REWRITE = [
    "Summarize this text:\n\n{}",
    "Continue this story:\n\n{}",
    "Rewrite this text in simple words:\n\n{}",
    "Ask three questions about this text and answer them:\n\n{}",
    "Write this text in the present tense:\n\n{}",
    "Who and what does this text speak of?\n\n{}",
]
